"""One descriptor is kept to duplicate others with when no number is free."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from service.http.spare_descriptor import SpareDescriptor
from tests.service.http.test_connections import no_free_descriptor


def test_a_duplicate_needs_no_free_number_and_leaves_none_when_released() -> None:
    spare = SpareDescriptor()
    spare.refill()
    with contextlib.ExitStack() as stack:
        stack.callback(spare.empty)
        ours, theirs = (stack.enter_context(each) for each in socket.socketpair())
        with no_free_descriptor():
            for _ in range(2):
                number = spare.duplicate(ours.fileno())
                assert os.fstat(number).st_ino == os.fstat(ours.fileno()).st_ino
                spare.release(number)
            with pytest.raises(OSError, match="Too many open files"):
                os.dup(0)
            assert spare.was_needed
        ours.close()
        assert theirs.recv(1) == b""  # no duplicate keeps it open


def test_an_abandoned_duplicate_stays_open() -> None:
    """Closing one of a file would release the locks on it."""
    spare = SpareDescriptor()
    spare.refill()
    with open(os.devnull, "rb") as file:
        with no_free_descriptor():
            number = spare.duplicate(file.fileno())
            spare.abandon(number)
            with pytest.raises(OSError, match="Too many open files"):
                spare.duplicate(file.fileno())
        spare.refill()
        spare.empty()
        os.close(number)


def test_an_ordinary_duplicate_takes_a_free_number() -> None:
    spare = SpareDescriptor()
    number = spare.duplicate(0)
    assert not spare.was_needed
    spare.release(number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
