"""The listening socket and its address."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from engine.addresses import address_text, bound_socket, listening_socket, own_address

BACKLOG = 2048
# From a server's port to the one of its admin API, unless that is set.
ADMIN_PORT_DISTANCE = 10_000
_MOST_PORT = 65_535


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host``:``port`` (0: any free port). Raises OSError."""
    listener = listening_socket(host, port, BACKLOG)
    listener.setblocking(False)
    return listener


def inherited_socket(descriptor: int) -> socket.socket:
    """Return a listening socket that the supervisor opened."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


def hold_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port (0: any free one) but does not listen: several
    processes can listen there with ``SO_REUSEPORT``. Raises OSError."""
    return bound_socket(host, port, socket.SO_REUSEPORT)


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
        return cls(host, port, own_address(host))

    @property
    def url(self) -> str:
        return f"http://{address_text(self.local_host, self.port)}"
