"""A process learns that its parent is gone (of whole engines: ``loop/test_process.py``)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

import pytest

from engine.lifetime import die_with_parent, watch_parent

_SET, _GET = 1, 2  # PR_SET_PDEATHSIG and PR_GET_PDEATHSIG, see prctl(2)


@pytest.mark.parametrize("parent", [2**22 + 1, os.getpid()], ids=["gone", "another process"])
def test_a_parent_that_is_gone_already_is_noticed_at_once(parent: int) -> None:
    """Linux has no process ids above 2**22."""
    calls: list[str] = []
    thread = watch_parent(lambda: calls.append(threading.current_thread().name), parent)
    thread.join(30)
    assert calls == [thread.name]
    assert thread.name != threading.current_thread().name


def test_a_living_parent_is_waited_for() -> None:
    gone = threading.Event()
    thread = watch_parent(gone.set)
    assert not gone.wait(0.05)
    assert thread.is_alive()
    assert thread.daemon  # it keeps no process from ending


@pytest.mark.skipif(sys.platform != "linux", reason="the service is Linux's")
def test_the_kernel_is_asked_to_kill_this_process_with_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prctl = ctypes.CDLL(None).prctl
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    asked = ctypes.c_int()
    try:
        die_with_parent(os.getppid())
        prctl(_GET, ctypes.byref(asked))
    finally:
        prctl(_SET, 0)
    assert asked.value == signal.SIGKILL
    assert ends == []


def test_a_process_whose_parent_is_already_gone_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    try:
        die_with_parent(os.getpid())
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SET, 0)
    assert ends == [1]
