"""The servers this dashboard may access. They are set by the operator, not the visitor: a page that
fetches any address a visitor types would expose the network it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from dashboard.server import base_url

SERVERS_VARIABLE = "QUIRE_BASE_URL"
ADMIN_VARIABLE = "QUIRE_DASHBOARD_ADMIN_URL"
ADMIN_KEY_VARIABLE = "QUIRE_DASHBOARD_ADMIN_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
NO_ADMIN = "none"

# As `quire serve` chooses it: --port plus this.
_ADMIN_PORT_DISTANCE = 10_000
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Server:
    """``admin``: where its admin API is, empty if it has none."""

    url: str
    admin: str

    @property
    def name(self) -> str:
        return urlsplit(self.url).netloc


def servers(environment: Mapping[str, str]) -> list[str]:
    """``QUIRE_BASE_URL``: one or more base URLs, separated by spaces or commas.

    Raises ValueError when one of them is not an http(s) URL.
    """
    listed = _words(environment, SERVERS_VARIABLE)
    return list(dict.fromkeys(base_url(url) for url in listed)) or [DEFAULT_URL]


def watched(environment: Mapping[str, str]) -> list[Server]:
    """The servers with their admin APIs: ``QUIRE_DASHBOARD_ADMIN_URL`` has as many URLs, in the
    same order, or ``none`` for a server without an admin API.

    Raises ValueError when they are not as many, or one is not an http(s) URL.
    """
    urls = servers(environment)
    admins = _words(environment, ADMIN_VARIABLE)
    if admins and len(admins) != len(urls):
        raise ValueError(
            f"{ADMIN_VARIABLE} names {len(admins)} admin APIs for {len(urls)} servers; name one "
            f"for each, in the same order, or {NO_ADMIN!r}"
        )
    chosen = admins or [_usual_admin(url) for url in urls]
    return [
        Server(url, "" if admin == NO_ADMIN else base_url(admin))
        for url, admin in zip(urls, chosen, strict=True)
    ]


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return environment.get(name, "").replace(",", " ").split()


def _usual_admin(url: str) -> str:
    parts = urlsplit(url)
    port = (parts.port or 80) + _ADMIN_PORT_DISTANCE
    if port > _HIGHEST_PORT:
        return NO_ADMIN
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"http://{host}:{port}"
