"""Worker threads run tasks in order, outlive those that fail, and end on request."""

from __future__ import annotations

import functools
import os
import sys
import threading

import pytest

from engine.constraint.workers import Workers, logger

SECONDS = 30


def test_one_thread_runs_tasks_in_the_order_they_came_and_outlives_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException | None] = []
    monkeypatch.setattr(logger, "exception", lambda *_: reported.append(sys.exc_info()[1]))
    ran: list[int] = []
    done = threading.Event()

    def fails() -> None:
        raise ValueError("nobody's fault")

    workers = Workers("test-order", 1)
    for number in range(20):
        workers.submit(functools.partial(ran.append, number))
        workers.submit(fails)
    workers.submit(done.set)
    assert done.wait(SECONDS)
    workers.close()
    assert ran == list(range(20))
    assert [str(error) for error in reported] == ["nobody's fault"] * 20


def test_a_thread_outlives_a_panic_which_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rust's panics come as ``pyo3_runtime.PanicException``, which is derived like this."""

    class PanicException(BaseException):
        pass

    reported: list[type[BaseException] | None] = []
    monkeypatch.setattr(logger, "exception", lambda *_: reported.append(sys.exc_info()[0]))
    done = threading.Event()

    def panics() -> None:
        raise PanicException

    workers = Workers("test-panic", 1)
    workers.submit(panics)
    workers.submit(done.set)
    assert done.wait(SECONDS)
    workers.close()
    assert reported == [PanicException]


def test_as_many_tasks_run_at_once_as_there_are_threads() -> None:
    meeting = threading.Barrier(3, timeout=SECONDS)

    def meet() -> None:
        meeting.wait()

    workers = Workers("test-many", 2)
    for _ in range(2):
        workers.submit(meet)
    meeting.wait()  # breaks unless both tasks are there at once
    workers.close()


def test_closed_workers_end_after_what_was_submitted_before() -> None:
    ran: list[str] = []
    threads: list[threading.Thread] = []
    known = threading.Event()

    def introduce() -> None:
        threads.append(threading.current_thread())
        known.set()

    workers = Workers("test-close", 1)
    workers.submit(introduce)
    workers.submit(lambda: ran.append("last"))
    workers.close()
    workers.submit(lambda: ran.append("too late"))
    assert known.wait(SECONDS)
    [thread] = threads
    assert thread.daemon
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert ran == ["last"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness on Linux only")
def test_niceness_is_the_threads_own_and_not_the_process_s() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    found: list[int] = []
    done = threading.Event()

    def look() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        done.set()

    workers = Workers("test-nice", 1, nice=19)
    workers.submit(look)
    assert done.wait(SECONDS)
    workers.close()
    assert found == [19]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
