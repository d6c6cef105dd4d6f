"""The listening socket and how this machine reaches it."""

from __future__ import annotations

import contextlib
import socket

import pytest

from service.supervision.listener import (
    ADMIN_PORT_DISTANCE,
    ServerAddress,
    hold_port,
    open_admin_socket,
    open_listening_socket,
)


def test_a_port_in_use_is_refused_at_once() -> None:
    listener = open_listening_socket("127.0.0.1", 0)
    with listener, pytest.raises(OSError, match="in use"):
        open_listening_socket("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("0.0.0.0", "http://127.0.0.1:"),  # noqa: S104  this is what is tested
        ("::", "http://127.0.0.1:"),
    ],
)
def test_an_address_shows_how_this_machine_reaches_it(host: str, local: str) -> None:
    with open_listening_socket(host, 0) as listener:
        assert ServerAddress.of(listener).url == f"{local}{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("several", [False, True])
def test_every_address_is_one_of_ipv6_or_ipv4(several: bool) -> None:
    with contextlib.ExitStack() as stack:
        if several:
            listener = stack.enter_context(hold_port("::", 0))
            listener.listen()
        else:
            listener = stack.enter_context(open_listening_socket("::", 0))
        for local in ("127.0.0.1", "::1"):
            socket.create_connection((local, listener.getsockname()[1]), 5).close()


def test_early_connections_wait_in_the_backlog() -> None:
    """The supervisor opens the socket, and workers may come to accept much later."""
    with open_listening_socket("127.0.0.1", 0) as listener:
        address = ServerAddress.of(listener)
        with socket.create_connection((address.local_host, address.port), 5) as client:
            client.sendall(b"early")
            accepted = listener.accept()[0]
            with accepted:
                accepted.settimeout(5)
                assert accepted.recv(5) == b"early"


def test_a_listener_is_bound_again_at_once_after_a_restart() -> None:
    """Although connections of the last one still linger."""
    first = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(first)
    with socket.create_connection((address.host, address.port), 5) as client:
        accepted = first.accept()[0]
        accepted.close()  # closing first leaves this side in TIME_WAIT
        first.close()
        assert client.recv(1) == b""
    open_listening_socket("127.0.0.1", address.port).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_written_in_brackets() -> None:
    try:
        listener = open_listening_socket("::1", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        port = listener.getsockname()[1]
        assert ServerAddress.of(listener).url == f"http://[::1]:{port}"


def test_the_admin_api_has_a_port_at_a_fixed_distance_or_any_free_one() -> None:
    with open_listening_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with open_admin_socket(
            "127.0.0.1", None, public_port=port - ADMIN_PORT_DISTANCE
        ) as fallen_back:
            assert fallen_back.getsockname()[1] not in (0, port)
        with pytest.raises(OSError, match="in use"):
            open_admin_socket("127.0.0.1", port, public_port=8000)
    with open_admin_socket("127.0.0.1", None, public_port=port - ADMIN_PORT_DISTANCE) as usual:
        assert usual.getsockname()[1] == port
    with open_admin_socket("127.0.0.1", None, public_port=60_000) as beyond:
        assert beyond.getsockname()[1] > 0


def test_several_processes_listen_on_a_port_that_is_held_and_no_other_server_gets_it() -> None:
    with hold_port("127.0.0.1", 0) as held, contextlib.ExitStack() as stack:
        port = ServerAddress.of(held).port
        for _ in range(2):
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            listener.settimeout(0)
        with pytest.raises(OSError, match="in use"):
            open_listening_socket("127.0.0.1", port)
        socket.create_connection(("127.0.0.1", port), 5).close()  # not to the one that is held
