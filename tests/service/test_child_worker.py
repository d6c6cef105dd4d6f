"""Tests of child processes that answer one request at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.child_worker import ChildWorker


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
