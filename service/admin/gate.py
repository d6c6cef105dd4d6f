"""Decides who may use the admin API, and for what: ``check`` before a route is looked for, so that
strangers learn nothing of what there is, ``permit`` when it is known.

With admin keys, every request needs one. Without, only clients on this machine may use it, and only
to read. Pages of any origin are refused, whatever key they send: no page is meant to call this API
(the dashboard's own server does it). Where the listener can be reached by pages through a name
that they resolve to it (DNS rebinding), unknown host names are refused too.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from engine.addresses import is_address
from observability.admin_api import AdminScope
from service.admin.problem import ProblemError
from service.admin_keys import AdminKey
from service.routes.route import RouteRow

LOOPBACK = "loopback"
_OWN_SITES = frozenset({b"", b"none", b"same-origin"})
_ANY = "*"
_MOST_SHOWN = 128


@dataclass(frozen=True, slots=True)
class Actor:
    """Who sends a request: alias of the key or ``LOOPBACK``, and the client's address."""

    alias: str
    address: str
    scope: AdminScope
    has_key: bool = True


@dataclass(frozen=True, slots=True)
class Approach:
    """What the gate looks at of a request. ``host``, ``origin``, ``site`` (Sec-Fetch-Site) and
    ``authorization`` are the headers' values, empty if they are missing. ``is_forwarded``: a proxy
    has added its headers."""

    address: str
    host: bytes = b""
    origin: bytes = b""
    site: bytes = b""
    authorization: bytes = b""
    is_forwarded: bool = False


class AdminGate:
    """``keys``: of the admin API; ``host``: the address it listens on; ``allowed_hosts``: names
    besides this machine's own by which it may be addressed. On an address that other machines
    reach, and with keys, it may also be addressed by any IP address, which DNS rebinding
    cannot forge."""

    def __init__(
        self, keys: Iterable[AdminKey], *, host: str, allowed_hosts: Iterable[str] = ()
    ) -> None:
        self._keys = [(_digest(key.key.encode()), key) for key in keys]
        names = {name.strip().lower().rstrip(".") for name in allowed_hosts}
        # Without a key, no setting that was made for the public port opens this one to any name.
        self._any_host = bool(self._keys) and (
            _ANY in names or not (names or is_this_machine(host))
        )
        self._any_address = bool(self._keys) and not is_this_machine(host)
        self._hosts = names - {_ANY}

    def check(self, approach: Approach) -> Actor:
        """Return who it is. Raises ProblemError."""
        if not self._keys:
            _check_place(approach)  # first: no other host name would help such a client
        self._check_host(approach.host)
        self._check_page(approach)
        return self._actor(approach)

    def identify(self, approach: Approach) -> str:
        """Return the name under which a refused try is recorded."""
        key = self._key(approach.authorization)
        if key is not None:
            return key.alias
        return LOOPBACK if is_this_machine(approach.address) and not self._keys else "unknown"

    def _check_host(self, value: bytes) -> None:
        if self._any_host:
            return
        name = _bare_host(value.decode("latin-1"))
        if self._any_address and is_address(name):
            return
        if not name or not (name in self._hosts or is_this_machine(name)):
            raise ProblemError(
                421,
                "host",
                f"The admin API does not answer to the host name '{name[:_MOST_SHOWN]}'. Use "
                "127.0.0.1 or localhost, or add the name to --allowed-hosts.",
            )

    def _check_page(self, approach: Approach) -> None:
        if approach.origin or approach.site not in _OWN_SITES:
            raise ProblemError(403, "origin", "Web pages may not call the admin API.")

    def _actor(self, approach: Approach) -> Actor:
        if not self._keys:
            return Actor(LOOPBACK, approach.address, AdminScope.READ, has_key=False)
        if not approach.authorization:
            raise _unauthorized("An admin key is required: send 'Authorization: Bearer KEY'.")
        key = self._key(approach.authorization)
        if key is None:
            raise _unauthorized("The admin key is wrong.")
        return Actor(key.alias, approach.address, key.scope)

    def _key(self, authorization: bytes) -> AdminKey | None:
        """Return the key that was sent; all are compared, each in constant time."""
        scheme, _, sent = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        digest = _digest(sent.strip())
        found = None
        for known, key in self._keys:
            if hmac.compare_digest(digest, known):
                found = key
        return found


def permit(actor: Actor, route: RouteRow) -> None:
    """Raise ProblemError unless the route's scope is one that the actor has."""
    if route.scope is AdminScope.READ or actor.scope is AdminScope.OPERATE:
        return
    if actor.has_key:
        raise ProblemError(
            403, "scope", "This key may only read; the request needs a key of scope 'operate'."
        )
    raise ProblemError(
        403,
        "key",
        "Nothing can be changed without an admin key; start the server with --admin-key.",
    )


def _check_place(approach: Approach) -> None:
    """Raise ProblemError unless the client is known to be on this machine."""
    if not is_this_machine(approach.address):
        raise ProblemError(
            403,
            "key",
            "Without an admin key the admin API serves only clients on the server's own machine; "
            "start the server with --admin-key (QUIRE_ADMIN_KEY).",
        )
    if approach.is_forwarded:
        raise ProblemError(
            403,
            "key",
            "This request came through a proxy, whose clients may be on any machine; start the "
            "server with --admin-key (QUIRE_ADMIN_KEY).",
        )


def _unauthorized(detail: str) -> ProblemError:
    return ProblemError(401, "key", detail, headers={"www-authenticate": 'Bearer realm="admin"'})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def is_this_machine(host: str) -> bool:
    """True if a name or address always refers to this machine."""
    name = host.lower().strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _bare_host(text: str) -> str:
    """Return the name in a Host header, without the port."""
    name = text.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0].strip("[")
    return name.partition(":")[0].rstrip(".")
