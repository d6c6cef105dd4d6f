"""The listening socket and its address."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

BACKLOG = 2048
# From a server's port to the one of its admin API, unless that is set.
ADMIN_PORT_DISTANCE = 10_000
_MOST_PORT = 65_535


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host``:``port`` (0: any free port). Raises OSError."""
    listener, address = _socket_for(host, port)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def inherited_socket(descriptor: int) -> socket.socket:
    """Return a listening socket that the supervisor opened."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


def _socket_for(host: str, port: int) -> tuple[socket.socket, Any]:
    """Return a socket that is not bound yet, and the address for it."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.socket(family, kind, protocol), address


def hold_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port (0: any free one) but does not listen: several
    processes can listen there with ``SO_REUSEPORT``. Raises OSError."""
    holder, address = _socket_for(host, port)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(address)
    except OSError:
        holder.close()
        raise
    return holder


def open_admin_socket(host: str, port: int | None, *, public_port: int) -> socket.socket:
    """Return the socket of the admin API. ``port``: as set; None: the public one plus
    ``ADMIN_PORT_DISTANCE``, or any free one if that is taken, so that any number of servers start
    on one machine. Raises OSError."""
    if port is not None:
        return open_listening_socket(host, port)
    usual = public_port + ADMIN_PORT_DISTANCE
    if usual <= _MOST_PORT:
        with contextlib.suppress(OSError):
            return open_listening_socket(host, usual)
    return open_listening_socket(host, 0)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """``host``: the address the socket is bound to; ``local_host``: reaches it from this
    machine."""

    host: str
    port: int
    local_host: str

    @classmethod
    def of(cls, listener: socket.socket) -> ServerAddress:
        host, port = listener.getsockname()[:2]
        local = host
        if ipaddress.ip_address(host).is_unspecified:
            local = "127.0.0.1" if listener.family is socket.AF_INET else "::1"
        return cls(host, port, local)

    @property
    def url(self) -> str:
        host = f"[{self.local_host}]" if ":" in self.local_host else self.local_host
        return f"http://{host}:{self.port}"
