"""Tests of the memory that arriving bodies share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from service.errors import OverloadedError
from service.tenants.caller import ANYBODY, Caller
from service.tenants.upload_room import FREE_BYTES, UploadRoom

ONE, OTHER = Caller("one", shares=True), Caller("other", shares=True)
MOST = 3000


def test_many_half_open_bodies_cannot_fill_the_memory() -> None:
    room = UploadRoom(MOST)
    with ExitStack() as arriving:
        bodies = [arriving.enter_context(room.arriving(ANYBODY)) for _ in range(100)]
        refused = 0
        for gained in bodies:
            try:
                gained(FREE_BYTES + 1000)
            except OverloadedError:
                refused += 1
        assert (refused, room.held) == (97, MOST)
        small = arriving.enter_context(room.arriving(ANYBODY))
        small(FREE_BYTES)
    assert room.held == 0


def test_a_single_body_may_be_larger_than_the_room() -> None:
    room = UploadRoom(MOST)
    with room.arriving(ANYBODY) as gained:
        for _ in range(10):
            gained(FREE_BYTES)
        with room.arriving(ANYBODY) as second, pytest.raises(OverloadedError):
            second(FREE_BYTES + 1)
        gained(1)


def test_one_key_leaves_room_to_the_others() -> None:
    room = UploadRoom(MOST)
    with ExitStack() as arriving:
        for _ in range(MOST // 2 // 100):
            arriving.enter_context(room.arriving(ONE))(FREE_BYTES + 100)
        one_more = arriving.enter_context(room.arriving(ONE))
        with pytest.raises(OverloadedError):
            one_more(FREE_BYTES + 100)
        arriving.enter_context(room.arriving(OTHER))(FREE_BYTES + 100)
        assert room.held == MOST // 2 + 100


def test_keys_whose_bodies_have_arrived_take_no_share() -> None:
    room = UploadRoom(MOST)
    for number in range(100):
        with room.arriving(Caller(f"gone-{number}", shares=True)) as gained:
            gained(FREE_BYTES + 100)
    with room.arriving(ONE) as first, room.arriving(ONE) as second:
        first(FREE_BYTES + 100)
        second(FREE_BYTES + MOST // 2 - 100)
