"""Tests of child processes that answer one request at a time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from service.supervision.child_worker import ChildDiedError, ChildKilledError, ChildWorker


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[ChildWorker]:
    made = ChildWorker("tests.service.echo_child", (), max_answer_bytes=100)
    yield made
    await made.close()


async def ask_and_send(worker: ChildWorker, *signals: signal.Signals) -> None:
    """A request that has no answer; each process that begins it gets the next signal."""
    left = list(signals)

    def begun(answer: bytes) -> None:
        assert answer == b"begun"
        assert worker.pid is not None
        os.kill(worker.pid, left.pop(0))

    await worker.ask(b"wait", begun, seconds=30)


async def test_clients_that_leave_while_it_starts_do_not_start_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = ChildWorker("tests.service.echo_child", (), max_answer_bytes=100)
    started = []
    real = asyncio.create_subprocess_exec

    async def counted(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        child = await real(*arguments, **options)
        started.append(child.pid)
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    try:
        for _ in range(3):
            leaving = asyncio.create_task(worker.ask(b"", bytes, seconds=30))
            while not (started or leaving.done()):
                await asyncio.sleep(0.001)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        assert await worker.ask(b"", int, seconds=30) == started[0]
        assert len(started) == 1
    finally:
        await worker.close()


async def test_a_request_whose_process_was_killed_from_outside_runs_again_in_the_next(
    worker: ChildWorker,
) -> None:
    first = await worker.ask(b"", int, seconds=30)
    os.kill(first, signal.SIGSTOP)
    asking = asyncio.create_task(worker.ask(b"", int, seconds=30))
    await asyncio.sleep(0)  # it has been sent
    os.kill(first, signal.SIGKILL)
    assert await asking != first


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_process_that_is_killed_again_is_nothing_of_its_own_doing(
    worker: ChildWorker, number: signal.Signals
) -> None:
    with pytest.raises(ChildKilledError):
        await ask_and_send(worker, number, number)
    assert await worker.ask(b"", int, seconds=30)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
async def test_a_process_that_crashes_has_died_of_its_request(
    worker: ChildWorker, number: signal.Signals
) -> None:
    with pytest.raises(ChildDiedError):
        await ask_and_send(worker, number)


async def test_closing_it_under_a_request_starts_nothing(worker: ChildWorker) -> None:
    asking = asyncio.create_task(worker.ask(b"wait", lambda _: None, seconds=30))
    while worker.pid is None:
        await asyncio.sleep(0.001)
    await worker.close()
    with pytest.raises(ChildDiedError):
        await asking
    assert worker.pid is None
