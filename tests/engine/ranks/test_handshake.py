"""Both ends know the secret, or nothing else is said."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from engine.ranks import handshake
from engine.ranks.handshake import HandshakeError, admit, introduce

SECRET = "a secret of some length"
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    leader, host = socket.socketpair()
    with leader, host:
        for end in (leader, host):
            end.settimeout(30)
        yield leader, host


def outcome(run: Callable[[], None]) -> Callable[[], str]:
    """Run in a thread. The result waits, and is the error's text, empty without one."""
    said: list[str] = []

    def target() -> None:
        try:
            run()
        except OSError as error:
            said.append(str(error))

    thread = threading.Thread(target=target)
    thread.start()

    def wait() -> str:
        thread.join(30)
        assert not thread.is_alive()
        return "".join(said)

    return wait


def test_two_that_know_the_secret_go_on_with_what_they_have_to_say(ends: Ends) -> None:
    leader, host = ends
    admitted = outcome(lambda: admit(leader, SECRET))
    introduce(host, SECRET)
    assert admitted() == ""
    host.sendall(b"the next message")
    assert leader.recv(100) == b"the next message"  # not a byte too many was read


def test_a_secret_may_have_bytes_that_are_no_text(ends: Ends) -> None:
    secret = os.fsdecode(b"sixteen bytes \xff\xfe")
    leader, host = ends
    admitted = outcome(lambda: admit(leader, secret))
    introduce(host, secret)
    assert admitted() == ""


def test_another_secret_is_refused_and_both_sides_know(ends: Ends) -> None:
    leader, host = ends
    admitted = outcome(lambda: admit(leader, SECRET))
    with pytest.raises(HandshakeError, match="refused our secret"):
        introduce(host, SECRET + "!")
    assert admitted() == "it has another secret"


def test_a_leader_that_does_not_know_the_secret_learns_nothing_that_it_could_send(
    ends: Ends,
) -> None:
    leader, host = ends
    introduced = outcome(lambda: introduce(host, SECRET))
    leader.sendall(handshake._MAGIC + bytes(32))
    answer = leader.recv(64, socket.MSG_WAITALL)
    assert len(answer) == 64
    # The host's own proof is not the leader's.
    leader.sendall(handshake._ACCEPTED + answer[32:])
    assert introduced() == "it does not know our secret"


def test_an_answer_heard_before_does_not_serve_again(ends: Ends) -> None:
    leader, host = ends
    admitted = outcome(lambda: admit(leader, SECRET))
    greeting = host.recv(100)
    nonce = greeting[len(handshake._MAGIC) :]
    theirs = bytes(32)
    host.sendall(theirs + handshake._proof(SECRET, b"host", bytes(32) + theirs))
    assert nonce != bytes(32)
    assert host.recv(100) == handshake._REFUSED
    assert admitted() == "it has another secret"


def test_what_is_no_leader_is_recognized(ends: Ends) -> None:
    leader, host = ends
    leader.sendall(b"HTTP/1.1 400 Bad Request\r\n".ljust(100))
    with pytest.raises(HandshakeError, match="not a leader of this version of Quire"):
        introduce(host, SECRET)


def test_who_says_little_is_not_waited_for(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if a byte comes now and then."""
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.3)
    leader, host = ends
    admitted = outcome(lambda: admit(leader, SECRET))
    host.sendall(b"x")
    assert "timed out" in (said := admitted()) or "no whole handshake" in said


def test_who_leaves_in_the_middle_is_an_error(ends: Ends) -> None:
    leader, host = ends
    host.sendall(bytes(10))
    host.shutdown(socket.SHUT_WR)
    with pytest.raises(HandshakeError, match="closed the connection"):
        admit(leader, SECRET)
