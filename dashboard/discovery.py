"""Servers found by a DNS name that has the addresses of several, as a headless Service in
Kubernetes has those of its pods."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

DNS = "dns+"
FRESH_SECONDS = 10.0

Resolve = Callable[[str], list[str]]


def resolve(name: str) -> list[str]:
    """Return a name's addresses in order, IPv4 first; empty: none, or DNS does not answer."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = {str(address[0]) for *_, address in found}
    return sorted(addresses, key=lambda address: (":" in address, _sortable(address)))


def _sortable(address: str) -> tuple[bytes, str]:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.inet_pton(family, address), ""
    except OSError:
        return b"", address


class Discovery:
    """Addresses of names, asked again every ``FRESH_SECONDS``. The page waits for the first answer
    only; later ones come by a thread. While a name has no address, the last ones stay."""

    def __init__(
        self, resolve: Resolve = resolve, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._resolve = resolve
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, list[str]]] = {}

    def addresses(self, name: str) -> list[str]:
        """Return what is known now."""
        with self._lock:
            asked, known = self._known.get(name, (0.0, []))
            if name in self._known and self._now() - asked < FRESH_SECONDS:
                return known
            self._known[name] = (self._now(), known)
        if not known:
            return self._ask(name)
        named = f"addresses of {name}"
        threading.Thread(target=self._ask, args=(name,), name=named, daemon=True).start()
        return known

    def _ask(self, name: str) -> list[str]:
        found = self._resolve(name)
        with self._lock:
            asked, known = self._known[name]
            self._known[name] = (asked, found or known)
            return self._known[name][1]

    def expanded(self, url: str) -> list[str]:
        """Return the URLs of the servers that ``url`` names: with ``dns+`` in front, one for each
        address, or the name's own if it has none; else ``url`` itself."""
        if not url.startswith(DNS):
            return [url]
        plain = url.removeprefix(DNS)
        parts = urlsplit(plain)
        found = self.addresses(parts.hostname or "")
        port = f":{parts.port}" if parts.port else ""
        hosts = [f"[{address}]" if ":" in address else address for address in found]
        return [f"{parts.scheme}://{host}{port}{parts.path}" for host in hosts] or [plain]
