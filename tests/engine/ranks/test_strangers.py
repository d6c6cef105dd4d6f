"""Few connections without the secret are kept, and the newest of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from engine.ranks.strangers import Strangers


class Crowd:
    """Connections to the same few strangers."""

    def __init__(self, ends: ExitStack) -> None:
        self._ends = ends
        self.strangers = Strangers(most=5, most_of_one_address=2)

    def add(self, address: str) -> tuple[socket.socket, str | None]:
        """Return the other end, and whose connection was ended for this one."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            self._ends.enter_context(end)
        theirs.setblocking(False)
        return theirs, self.strangers.add(ours, address)


def has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with ExitStack() as ends:
        yield Crowd(ends)


def test_an_address_has_few_and_its_oldest_goes(crowd: Crowd) -> None:
    other, _ = crowd.add("b")
    ours = [crowd.add("a") for _ in range(4)]
    assert [ended for _, ended in ours] == [None, None, "a", "a"]
    assert [has_ended(one) for one, _ in ours] == [True, True, False, False]
    assert not has_ended(other)


def test_there_are_few_in_all_and_the_oldest_goes(crowd: Crowd) -> None:
    added = [crowd.add(address) for address in "abcdefg"]
    assert [ended for _, ended in added] == [None] * 5 + ["a", "b"]
    assert [has_ended(one) for one, _ in added] == [True] * 2 + [False] * 5


def test_who_has_said_who_it_is_is_left_alone() -> None:
    strangers = Strangers(most=5, most_of_one_address=1)
    ours, theirs = socket.socketpair()
    next_ours, next_theirs = socket.socketpair()
    with ours, theirs, next_ours, next_theirs:
        strangers.add(ours, "a")
        strangers.remove(ours)
        strangers.remove(ours)
        assert strangers.add(next_ours, "a") is None
        theirs.setblocking(False)
        assert not has_ended(theirs)


def test_one_that_is_broken_already_is_no_obstacle() -> None:
    strangers = Strangers(most=5, most_of_one_address=1)
    ours, theirs = socket.socketpair()
    next_ours, next_theirs = socket.socketpair()
    strangers.add(ours, "a")
    with next_ours, next_theirs, theirs:
        ours.close()
        assert strangers.add(next_ours, "a") == "a"
