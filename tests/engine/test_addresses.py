"""Which sockets an address means, and how addresses are written."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from engine.addresses import address_text, bound_socket, is_address, own_address, plain_address

REUSE = socket.SO_REUSEADDR
EVERY_IPV4 = "0.0.0.0"  # noqa: S104  a comparison


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_every_address_is_one_of_ipv6_or_ipv4_whatever_the_systems_default() -> None:
    with bound_socket("::", 0, REUSE) as listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 0
        listener.listen()
        for host, seen in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
            with socket.create_connection((host, listener.getsockname()[1]), 30):
                accepted, peer = listener.accept()
                accepted.close()
                assert plain_address(peer[0]) == seen


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_listens_on_every_address_of_ipv4(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Only its kernel can say so, and ours has it."""
    real = socket.socket

    def only_ipv4(family: int, *rest: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return real(family, *rest)

    monkeypatch.setattr("engine.addresses.socket.socket", only_ipv4)
    with bound_socket("::", 0, REUSE) as listener:
        assert listener.getsockname()[0] == EVERY_IPV4
    with pytest.raises(OSError, match="no IPv6"):
        bound_socket("::1", 0, REUSE)


def test_a_name_is_one_of_its_addresses_and_another_machines_address_is_refused() -> None:
    with bound_socket("localhost", 0, REUSE) as listener:
        assert listener.getsockname()[0] in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match="assign"):
        bound_socket("192.0.2.77", 0, REUSE)  # kept for documentation: no one's


def test_every_address_includes_this_machines_own() -> None:
    assert own_address(EVERY_IPV4) == "127.0.0.1"
    # Not ::1, which a container without IPv6 lacks.
    assert own_address("::") == "127.0.0.1"
    assert own_address("10.0.0.7") == "10.0.0.7"


def test_an_ipv6_address_is_written_in_brackets_and_an_ipv4_one_as_such() -> None:
    assert address_text("fd00::1", 80) == "[fd00::1]:80"
    assert address_text("leader", 80) == "leader:80"
    assert plain_address("::ffff:10.0.0.7") == "10.0.0.7"
    assert plain_address("fd00::1") == "fd00::1"


def test_an_address_is_not_a_name() -> None:
    assert is_address("10.0.0.7")
    assert is_address("fd00::1")
    for name in ("", "leader", "10.0.0.7.example", "10.0.0.7:80"):
        assert not is_address(name)
