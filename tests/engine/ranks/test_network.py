"""Addresses and connections between hosts."""

from __future__ import annotations

import socket
import sys

import pytest

from engine.ranks.network import (
    interface_of,
    listen,
    parse_address,
    peer_of,
    tune_connection,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("leader:29500", ("leader", 29500)),
        ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "leader", ":29500", "leader:", "leader:x", "leader:²", "a..b:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("port", ["0", "65536"])
def test_a_port_has_its_bounds(port: str) -> None:
    with pytest.raises(ValueError, match="1 to 65535"):
        parse_address(f"leader:{port}")


@pytest.mark.skipif(sys.platform != "linux", reason="the interface's name is Linux's")
def test_an_interface_is_found_by_its_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("127.0.0.5") == "lo"
    assert interface_of("::ffff:127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None  # kept for documentation: no one's
    assert interface_of("2001:db8::1") is None
    assert interface_of("a name") is None


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_all_addresses_of_ipv6_include_those_of_ipv4() -> None:
    with (
        listen("::", 0) as listener,
        socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 30) as ours,
    ):
        theirs, peer = listener.accept()
        theirs.close()
        assert peer[0] == "::ffff:127.0.0.1"
        assert peer_of(ours) == ("127.0.0.1", listener.getsockname()[1])


def test_connections_send_at_once_and_notice_a_host_that_is_gone() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()[:2], 30) as ours,
    ):
        theirs, _ = listener.accept()
        with theirs:
            tune_connection(ours)
            assert ours.gettimeout() is None
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if sys.platform == "linux":
                probes = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
                every = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
                idle = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                assert idle + probes * every <= 15
                assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            ours.sendall(b"x")
            assert theirs.recv(1) == b"x"
