"""TCP connections between the hosts of a model."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.addresses import listening_socket

# A host that no longer answers is noticed within _IDLE + _PROBES * _INTERVAL seconds, or, with data
# under way, within _UNANSWERED.
_IDLE, _INTERVAL, _PROBES = 5, 3, 3
_UNANSWERED = 15.0
_BACKLOG = 128
_SIOCGIFADDR = 0x8915
_IPV6_TABLE = Path("/proc/net/if_inet6")


def tune_connection(connection: socket.socket) -> None:
    """Make a connection send small messages at once, and notice that the other host is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE),
        ("TCP_KEEPINTVL", _INTERVAL),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", round(_UNANSWERED * 1000)),
    ):
        option = getattr(socket, name, None)  # not all systems have all of them
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address of this machine; ``::``: on all. Raises OSError."""
    return listening_socket(host, port, _BACKLOG)


def peer_of(connection: socket.socket) -> tuple[str, int]:
    """Return the numeric address and the port of the other end. Raises OSError."""
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    host, port = socket.getnameinfo(connection.getpeername(), numeric)  # with its scope, if any
    return host, int(port)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` (an IPv6 address in brackets). Raises ValueError."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        host.encode("idna")  # as connecting does
    except UnicodeError:
        host = ""
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"a port is 1 to 65535, got {port}")
    return host, int(port)


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has this address; None if it is not known."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped is not None:
        wanted = wanted.ipv4_mapped
    if isinstance(wanted, ipaddress.IPv4Address):
        if wanted.is_loopback:
            wanted = ipaddress.IPv4Address("127.0.0.1")
        return _having_ipv4(wanted)
    with suppress(OSError):
        for line in _IPV6_TABLE.read_text().splitlines():
            digits, *_, name = line.split()
            if int(digits, 16) == int(wanted):
                return name
    return None


def _having_ipv4(wanted: ipaddress.IPv4Address) -> str | None:
    ask = _ipv4_of_interface()
    if ask is None:
        return None
    for _, name in socket.if_nameindex():
        with suppress(OSError):  # it has no IPv4 address
            if ask(name) == wanted:
                return name
    return None


def _ipv4_of_interface() -> Callable[[str], ipaddress.IPv4Address] | None:
    """Return a function that reads an interface's first IPv4 address; None if there is none."""
    try:
        import fcntl
    except ImportError:
        return None

    def ask(name: str) -> ipaddress.IPv4Address:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("256s", name.encode()[:15])
            reply = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
        return ipaddress.IPv4Address(reply[20:24])

    return ask
