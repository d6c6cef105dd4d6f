"""Decides which web pages may call the server, and by which host names it may be addressed.

A browser sends a page's requests to any address, including this machine's own, regardless of the
page's author. It states the page's origin (Origin) and only gives the page the response if that is
allowed (CORS). A server without API keys therefore rejects requests from pages of other origins.
One that only listens on a loopback address also rejects unknown host names: an attacker's name may
resolve to it (DNS rebinding), which would make the attacker's pages same-origin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from litestar.types import Scope

from engine.addresses import is_address
from service.errors import ForbiddenError
from service.http.scope import header
from service.wire.limit_headers import LIMIT_HEADERS

ANY = "*"

Headers = list[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, DELETE, OPTIONS"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Headers that clients in browsers send. Always listed in full, so that a proxy may cache the
# response.
_REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "content-encoding",
    "accept",
    "x-api-key",
    "api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "openai-organization",
    "openai-project",
    "openai-beta",
    "idempotency-key",
    "last-event-id",
    "user-agent",
    "x-request-id",
    "x-request-timeout",
    "x-quire-resumable",
    "x-stainless-arch",
    "x-stainless-async",
    "x-stainless-custom-poll-interval",
    "x-stainless-helper",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-poll-helper",
    "x-stainless-read-timeout",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
)
# Names in full: a wildcard does not hold for requests with credentials.
_EXPOSED = ", ".join(
    (
        *("x-request-id", "request-id", "x-quire-ignored", "x-quire-hint", "x-quire-reason"),
        *("x-quire-stream-id", "x-trace-id", "traceresponse", "retry-after", "x-should-retry"),
        *LIMIT_HEADERS,
    )
).encode()
_PREFLIGHT_SECONDS = b"600"
_MOST_ASKED_BYTES = 4096


class OriginRules:
    """``origins``: pages of these may call the server; ``hosts``: host names that requests may use
    besides this machine's own (``*`` in either: all); None: any. ``addresses``: requests may also
    use any IP address. ``guarded``: no key protects the server, so requests from pages of other
    origins are rejected."""

    def __init__(
        self,
        *,
        origins: Iterable[str],
        hosts: Iterable[str] | None,
        guarded: bool,
        addresses: bool = False,
    ) -> None:
        self._origins = frozenset(_origin(origin) for origin in origins)
        names = None if hosts is None else frozenset(_bare_host(host) for host in hosts)
        self._hosts = None if names is None or ANY in names else names
        self._addresses = addresses
        self._guarded = guarded

    @classmethod
    def of(
        cls,
        *,
        host: str,
        keys: bool,
        allowed_hosts: tuple[str, ...],
        allowed_origins: Iterable[str],
    ) -> OriginRules:
        """``host``: the address the server listens on; ``keys``: whether it requires API keys."""
        checked = bool(allowed_hosts) or (is_loopback(host) and not keys)
        return cls(
            origins=allowed_origins,
            hosts=allowed_hosts if checked else None,
            guarded=not keys,
            # Probes and scrapes use the pod's address, which DNS rebinding cannot forge.
            addresses=not is_loopback(host),
        )

    def check(self, scope: Scope) -> None:
        """Raise ForbiddenError for a request that is not allowed."""
        if self._hosts is not None:
            for name, value in scope["headers"]:
                if name == b"host":
                    self._check_host(value.decode("latin-1"))
        if not self._guarded or scope.get("method") in _READING:
            return
        origin = header(scope, b"origin").decode("latin-1")
        if origin and not self.allows(origin) and not _same(origin, header(scope, b"host")):
            raise ForbiddenError(
                f"Pages of {origin[:256]} may not call this server. To let them, start it with "
                f"--allowed-origins {origin[:256]}."
            )

    def _check_host(self, value: str) -> None:
        assert self._hosts is not None
        name = _bare_host(value)
        if self._addresses and is_address(name.strip("[]")):
            return
        if name and name not in self._hosts and not is_loopback(name):
            instead = "its IP address" if self._addresses else "localhost or 127.0.0.1"
            raise ForbiddenError(
                f"This server does not answer to the host name '{name[:256]}'. Use {instead}, or "
                f"start it with --allowed-hosts {name[:256]}."
            )

    def allows(self, origin: str) -> bool:
        return ANY in self._origins or origin.lower() in self._origins

    def response_headers(self, scope: Scope) -> Headers:
        """Return the headers of every response to ``scope``, regardless of its status."""
        if not self._origins:
            return []
        origin = header(scope, b"origin")
        headers: Headers = [(b"vary", b"Origin")]
        if origin and self.allows(origin.decode("latin-1")):
            headers.append((b"access-control-allow-origin", origin))
            headers.append((b"access-control-expose-headers", _EXPOSED))
        return headers

    def preflight(self, scope: Scope) -> Headers | None:
        """Return the response headers if ``scope`` is a CORS preflight request of an allowed page.
        Browsers send it without the key."""
        asked = header(scope, b"access-control-request-method")
        origin = header(scope, b"origin").decode("latin-1")
        if scope.get("method") != "OPTIONS" or not asked or not self.allows(origin):
            return None
        wanted = header(scope, b"access-control-request-headers")[:_MOST_ASKED_BYTES]
        names = [name.strip().lower() for name in wanted.decode("latin-1").split(",")]
        listed = dict.fromkeys([*_REQUEST_HEADERS, *(name for name in names if name)])
        headers = [
            *self.response_headers(scope),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", ", ".join(listed).encode("latin-1")),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        if header(scope, b"access-control-request-private-network"):
            headers.append((b"access-control-allow-private-network", b"true"))
        return headers


def is_loopback(host: str) -> bool:
    """True if a name or address always refers to this machine."""
    name = host.lower().strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _origin(text: str) -> str:
    return text.strip().rstrip("/").lower()


def _bare_host(text: str) -> str:
    """Return the name in a Host header, without the port."""
    name = text.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    if name.count(":") == 1:
        name = name.partition(":")[0]
    return name.rstrip(".")


def _same(origin: str, host: bytes) -> bool:
    """True if a page's origin is the server it calls. The scheme may differ behind a proxy."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.decode("latin-1").lower()
    except ValueError:
        return False
