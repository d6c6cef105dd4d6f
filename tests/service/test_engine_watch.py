"""An engine that says nothing for too long is ended; one that speaks is left alone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from service.engine_watch import GPU_TIMEOUT_SECONDS, hang_timeout, kill_when_silent, process_behind
from tests.service.test_engine_link import READY


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "600"])
    yield started
    started.kill()
    started.wait()


async def test_silence_ends_it_even_if_it_stands_still(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    await asyncio.wait_for(kill_when_silent(process.pid, lambda: 1.0, 0.2), 10)
    assert process.wait(10) == -signal.SIGKILL


async def test_words_keep_it_alive(process: subprocess.Popen[bytes]) -> None:
    heard, asked = 0.0, 0

    def last_word() -> float:
        nonlocal heard, asked
        asked += 1
        if asked < 40:  # ten times as long as the silence that would be too long
            heard += 1.0
        return heard

    await asyncio.wait_for(kill_when_silent(process.pid, last_word, 0.04), 10)
    assert asked > 40
    assert process.wait(10) == -signal.SIGKILL  # then it fell silent


async def test_one_that_is_gone_already_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    await asyncio.wait_for(kill_when_silent(gone.pid, lambda: None, 0.04), 10)


def test_who_is_at_the_other_end_is_known() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert process_behind(ours) == os.getpid()


@pytest.mark.parametrize(
    ("setting", "device", "timeout"),
    [
        (None, "cpu", 0.0),
        (None, "cuda:0", GPU_TIMEOUT_SECONDS),
        (0.0, "cuda:0", 0.0),
        (5.0, "cpu", 5.0),
    ],
)
def test_a_gpu_must_not_be_silent_for_long(
    setting: float | None, device: str, timeout: float
) -> None:
    assert hang_timeout(setting, msgspec.structs.replace(READY, device=device)) == timeout


def test_a_process_that_cannot_be_seen_from_here_is_not_signalled() -> None:
    class Elsewhere(socket.socket):
        def getsockopt(self, *_: object) -> bytes:  # type: ignore[override]
            return struct.pack("3i", 0, 0, 0)

    with Elsewhere() as connection, pytest.raises(OSError, match="another process namespace"):
        process_behind(connection)
