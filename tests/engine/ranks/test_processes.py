"""A rank's process gets its connection and its arguments, and how it ended is described."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from engine.ranks.channel import Channel
from engine.ranks.messages import Arrived, FromRank
from engine.ranks.processes import describe_end, start_rank


def test_a_rank_reports_over_its_connection_and_ends_with_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = start_rank(3, theirs, os.environ)
    ours.settimeout(120)
    channel: Channel[FromRank] = Channel(ours, FromRank)
    try:
        assert channel.receive() == Arrived()
        channel.shutdown()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        channel.close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "closed its connection"),
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_end_is_described(code: int | None, said: str) -> None:
    assert describe_end(code) == said
