"""A process that is kept alive: what is known of it, and what happens if it hangs."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.beats import Page, Sign
from service.supervision import child as child_module
from service.supervision.child import Child
from service.supervision.child_process import await_end
from service.supervision.hang_watch import Silence
from service.supervision.restarts import FIRST_DELAY_SECONDS, HEALTHY_SECONDS


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(
        "server",
        0,
        "http.server",
        ["0", "--bind=127.0.0.1"],
        dict(os.environ),
        page=Page(),
        silence=Silence(1.0),
        inactivity=Silence(1.0),
        hangs=lambda page, silent, inactive: page[Sign.ALLOWED_SECONDS] > 0,
    )
    made.start()
    yield made
    if made.pid is not None:
        made.signal(signal.SIGKILL)
        await_end([made.pid], 10)


def test_one_that_hangs_is_killed_once(child: Child) -> None:
    pid = child.pid
    assert pid is not None
    child.kill_if_it_hangs(time.monotonic())
    assert not child.is_condemned
    child.page[Sign.ALLOWED_SECONDS] = 1
    child.kill_if_it_hangs(time.monotonic())
    assert child.is_condemned
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    child.kill_if_it_hangs(time.monotonic())  # its process id is free for others by now
    child.pid = None


def test_how_long_one_was_silent_is_not_held_against_the_next(child: Child) -> None:
    first = child.pid
    assert first is not None
    child.hangs = lambda page, silent, inactive: silent >= 3
    begin = time.monotonic()
    for seconds in range(5):
        child.kill_if_it_hangs(begin + seconds)
    assert child.is_condemned
    assert await_end([first], 10) == []
    child.start()  # has not beaten yet, as the first never had
    child.kill_if_it_hangs(begin + 5)
    assert not child.is_condemned


def test_it_is_ready_once_it_says_so_and_not_after_its_death_or_restart(child: Child) -> None:
    first = child.pid
    assert first is not None
    assert not child.is_ready
    child.page[Sign.READY_AT] = time.monotonic()
    assert child.is_ready
    child.signal(signal.SIGKILL)
    assert await_end([first], 10) == []
    child.pid = None
    assert not child.is_ready
    child.start()
    assert not child.is_ready


def test_one_that_the_system_cannot_start_again_is_tried_again_later(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert child.pid is not None
    child.signal(signal.SIGKILL)
    assert await_end([child.pid], 10) == []
    child.pid = None

    def fail(*_args: object, **_kwargs: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as patched:
        patched.setattr(child_module, "spawn", fail)
        for deaths in (1, 2):
            before = time.monotonic()
            child.restart()
            assert child.pid is None
            assert child.policy.fruitless_deaths == deaths
            assert child.restart_at is not None
            assert child.restart_at - before >= FIRST_DELAY_SECONDS * deaths
    child.restart()
    assert child.pid is not None
    assert child.restart_at is None


def test_work_or_a_long_healthy_life_is_progress(child: Child) -> None:
    assert not child.made_progress
    child.page[Sign.READY_AT] = time.monotonic() - HEALTHY_SECONDS
    assert child.made_progress
    child.page[Sign.READY_AT] = time.monotonic()
    assert not child.made_progress
    child.page[Sign.PROGRESS] = 1
    assert child.made_progress


def test_the_sentence_with_which_it_refuses_to_start_is_read_and_forgotten(
    child: Child, tmp_path: Path
) -> None:
    assert child.failure() == ""
    child.failure_file = tmp_path / "engine.failure"
    assert child.failure() == ""
    child.failure_file.write_text("cannot read\n x.gguf" + "!" * 5000)
    assert child.failure().startswith("cannot read x.gguf!!!")
    assert len(child.failure()) < 2001
    first = child.pid
    assert first is not None
    child.signal(signal.SIGKILL)
    assert await_end([first], 10) == []
    child.start()
    assert child.failure() == ""
