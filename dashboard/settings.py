"""The servers this dashboard may access. They are set by the operator, not the visitor: a page that
fetches any address a visitor types would expose the network it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from dashboard.discovery import DNS, Discovery
from dashboard.server import base_url

SERVERS_VARIABLE = "QUIRE_BASE_URL"
ADMIN_VARIABLE = "QUIRE_DASHBOARD_ADMIN_URL"
ADMIN_KEY_VARIABLE = "QUIRE_DASHBOARD_ADMIN_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
NO_ADMIN = "none"

# As `quire serve` chooses it: --port plus this.
ADMIN_PORT_DISTANCE = 10_000
_HIGHEST_PORT = 65_535


_discovery = Discovery()


@dataclass(frozen=True, slots=True)
class Server:
    """``admin``: where its admin API is, empty if it has none."""

    url: str
    admin: str

    @property
    def name(self) -> str:
        return server_name(self.url)


def server_name(url: str) -> str:
    """Return what the dashboard calls a server: not with its user and password. One proxy may lead
    to several, by their paths."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path


def named_url(text: str) -> str:
    """Return a base URL, which may have ``dns+`` in front. Raises ValueError when it is not an
    http(s) URL."""
    mark = DNS if text.strip().startswith(DNS) else ""
    return mark + base_url(text.strip().removeprefix(DNS))


def servers(environment: Mapping[str, str], discovery: Discovery = _discovery) -> list[str]:
    """``QUIRE_BASE_URL``: one or more base URLs, separated by spaces or commas. One that begins
    with ``dns+`` means as many servers as its host name has addresses.

    Raises ValueError when one of them is not an http(s) URL.
    """
    return [server.url for server in watched(environment, discovery)]


def watched(environment: Mapping[str, str], discovery: Discovery = _discovery) -> list[Server]:
    """The servers with their admin APIs: ``QUIRE_DASHBOARD_ADMIN_URL`` has as many URLs, in the
    same order, or ``none`` for a server without an admin API. Of the admin API of servers found by
    DNS, it names the port.

    Raises ValueError when they are not as many, or one is not an http(s) URL.
    """
    urls = list(dict.fromkeys(map(named_url, _words(environment, SERVERS_VARIABLE))))
    urls = urls or [DEFAULT_URL]
    admins = _words(environment, ADMIN_VARIABLE)
    if admins and len(admins) != len(urls):
        raise ValueError(
            f"{ADMIN_VARIABLE} names {len(admins)} admin APIs for {len(urls)} servers; name one "
            f"for each, in the same order, or {NO_ADMIN!r}"
        )
    chosen = admins or [_usual_admin(url.removeprefix(DNS)) for url in urls]
    return [
        Server(found, _admin_of(found, admin, is_found=url.startswith(DNS)))
        for url, admin in zip(urls, chosen, strict=True)
        for found in discovery.expanded(url)
    ]


def _admin_of(url: str, admin: str, *, is_found: bool) -> str:
    if admin == NO_ADMIN:
        return ""
    plain = named_url(admin).removeprefix(DNS)
    if not is_found:
        return plain
    parts = urlsplit(plain)
    return f"{parts.scheme}://{_host(url)}:{parts.port or 80}"


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return environment.get(name, "").replace(",", " ").split()


def _usual_admin(url: str) -> str:
    parts = urlsplit(url)
    port = (parts.port or 80) + ADMIN_PORT_DISTANCE
    if port > _HIGHEST_PORT:
        return NO_ADMIN
    return f"http://{_host(url)}:{port}"


def _host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host
