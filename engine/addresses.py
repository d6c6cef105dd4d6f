"""Sockets that listen, and the addresses of clients. The service uses this, too."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

EVERY_ADDRESS = "::"
_EVERY_IPV4_ADDRESS = "0.0.0.0"  # noqa: S104  only where every address is meant
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bound_socket(host: str, port: int, option: int) -> socket.socket:
    """Return a TCP socket that is bound to ``host``:``port`` (0: any free port) and does not listen
    yet. ``::`` is every address of this machine, of IPv6 and IPv4; on one without IPv6, those of
    IPv4. ``option``: a socket option to set before. Raises OSError."""
    try:
        return _bound_socket(host, port, option)
    except OSError as error:
        if host != EVERY_ADDRESS or error.errno not in _NO_IPV6:
            raise
        return _bound_socket(_EVERY_IPV4_ADDRESS, port, option)


def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on ``host``:``port``, as ``bound_socket`` reads them. Raises
    OSError."""
    listener = bound_socket(host, port, socket.SO_REUSEADDR)
    try:
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def _bound_socket(host: str, port: int, option: int) -> socket.socket:
    family, kind, protocol, _, address = _resolved(host, port)
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        if family is socket.AF_INET6 and host == EVERY_ADDRESS:
            # What the system does by itself depends on how it is configured.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _resolved(host: str, port: int) -> tuple[Any, ...]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def own_address(host: str) -> str:
    """Return where processes of this machine reach what listens on ``host``."""
    return "127.0.0.1" if host in (EVERY_ADDRESS, _EVERY_IPV4_ADDRESS) else host


def is_address(host: str) -> bool:
    """True for an IP address, false for a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def plain_address(address: str) -> str:
    """Return an IPv4 address as such, where a socket for both kinds has it as an IPv6 one."""
    return address.removeprefix("::ffff:") if "." in address else address


def address_text(host: str, port: int) -> str:
    """Return ``HOST:PORT``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
