"""Where a server is, as people write it: ``HOST:PORT``, or its URL with or without ``/v1``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """``authority``: host and port as in the ``Host`` header. ``prefix``: of all paths."""

    scheme: str
    host: str
    port: int
    authority: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> ServerAddress:
        """Raises ValueError, whose message is for people."""
        url = text.strip()
        if len(url.replace(",", " ").split()) > 1:
            raise ValueError(f"several servers are named: {url}; give one with --base-url")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError:  # brackets that are not those of an IPv6 address
            parts = urlsplit("")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"not an http(s) URL: {url}")
        try:
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except ValueError:
            port = 0
        if not port:
            raise ValueError(f"the port must be a number from 1 to 65,535: {url}")
        return cls(
            parts.scheme,
            parts.hostname,
            port,
            parts.netloc.rpartition("@")[2],
            parts.path.rstrip("/").removesuffix("/v1"),
        )

    @property
    def is_encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}"
