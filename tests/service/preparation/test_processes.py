"""Preparation processes are bounded in time and memory, and end when no one needs their work."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from engine.messages import FRAME_HEADER
from pocket import MODEL_DIR
from service.checkpoint.probe import ProbedTemplate
from service.errors import (
    ContextTooLongError,
    HelperKilledError,
    InvalidRequestError,
    OverloadedError,
)
from service.preparation import processes
from service.preparation.jobs import Job, Noted, PreparedChat
from service.preparation.processes import PreparationProcesses, arguments_for
from tests.service.preparation.prepared import LIMITS, SETUP, engine
from tests.service.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Each of a conversation's messages may need something else.
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.content == 'loop' %}"
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"
    "{% elif message.content == 'fill' %}"
    "{% set all = namespace(x='x' * 1000000) %}"
    "{% for i in range(40) %}{% set all.x = all.x ~ all.x %}{% endfor %}"
    "{% endif %}{{ message.content }}{% endfor %}"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preparation(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[PreparationProcesses]:
    directory = write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")
    config = directory / "tokenizer_config.json"
    fields = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps({**fields, "chat_template": TEMPLATE}))
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    arguments = arguments_for(directory, tool_call_parser="auto", reasoning_parser="auto")
    setup = msgspec.structs.replace(SETUP, probed=ProbedTemplate())
    made = PreparationProcesses(arguments, setup)
    await made.run(chat("hello"), Noted(), "me")
    await until(lambda: len(made.pids) == 2)  # one that works, and its spare
    yield made
    await made.close()


def chat(*contents: str, context: int = 4096) -> Job:
    messages = [{"role": "user", "content": content} for content in contents]
    return Job(
        step="chat",
        body=json.dumps({"messages": messages}).encode(),
        limits=LIMITS,
        engine=engine(vocab_size=300, max_model_len=context),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def prepared(preparation: PreparationProcesses, *contents: str) -> PreparedChat:
    made = await preparation.run(chat(*contents), Noted(), "me")
    assert isinstance(made, PreparedChat)
    return made


async def test_a_template_that_does_not_end_is_ended(
    preparation: PreparationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, noted = preparation.pids, Noted()
    with monkeypatch.context() as shorter:
        shorter.setattr(processes, "JOB_SECONDS", 0.5)
        with pytest.raises(InvalidRequestError, match="chat template took more than") as refused:
            await preparation.run(chat("loop"), noted, "me")
    noted.enter(None, time.monotonic())
    assert [one.phase for one in noted.intervals] == ["render"]
    assert refused.value.param == "messages"
    assert refused.value.status == 400
    [killed] = set(before) - set(preparation.pids)
    await until(lambda: _has_ended(killed))
    assert (await prepared(preparation, "hello")).generation.prompts


async def test_memory_is_bounded(preparation: PreparationProcesses) -> None:
    with pytest.raises(InvalidRequestError, match=r"memory|limits|characters"):
        await prepared(preparation, "fill")
    assert (await prepared(preparation, "hello")).generation.prompts


async def test_a_refused_job_is_not_kept(preparation: PreparationProcesses) -> None:
    """Hundreds of megabytes would be, between two garbage collections."""
    job = chat("x" * 100_000, context=10)
    before = sys.getrefcount(job)
    gc.disable()
    try:
        with pytest.raises(ContextTooLongError):
            await preparation.run(job, Noted(), "me")
        await asyncio.sleep(0)  # for callbacks that still refer to it
        assert sys.getrefcount(job) == before
    finally:
        gc.enable()


async def test_a_job_that_nobody_wants_any_more_is_ended(preparation: PreparationProcesses) -> None:
    work, pid = await at_work(preparation)
    await leave(preparation, work, pid)
    assert (await prepared(preparation, "hello")).generation.prompts


async def test_the_next_job_does_not_wait_for_a_process_to_start(
    preparation: PreparationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, pid = await at_work(preparation)
    await until(lambda: len(preparation.pids) > 1)
    may_start = asyncio.Event()
    real = asyncio.create_subprocess_exec
    starting = []

    async def held(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        starting.append(arguments)
        await may_start.wait()
        return await real(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", held)
    await leave(preparation, work, pid)
    await until(lambda: bool(starting))  # before it is needed
    assert (await prepared(preparation, "hello")).generation.prompts
    may_start.set()
    await until(lambda: len(preparation.pids) > 1)


async def test_a_crowd_that_leaves_starts_no_more_processes_than_may_run(
    preparation: PreparationProcesses,
) -> None:
    crowd = [asyncio.create_task(prepared(preparation, "loop")) for _ in range(6)]
    await until(lambda: len(preparation.pids) == 3)
    for work in crowd:
        work.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    assert (await prepared(preparation, "hello")).generation.prompts
    assert len(preparation.pids) <= 3


async def test_a_process_that_somebody_kills_is_not_its_clients_fault(
    preparation: PreparationProcesses,
) -> None:
    killed: set[int] = set()
    busy = who_works(preparation)

    def kill_who_works() -> bool:
        for pid in set(busy()) - killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        return work.done()

    work = asyncio.create_task(prepared(preparation, "loop"))
    await until(kill_who_works)
    with pytest.raises(HelperKilledError, match="killed twice") as refused:
        await work
    assert (refused.value.status, refused.value.retry_after) == (503, 5)
    assert len(killed) == 2
    assert (await prepared(preparation, "hello")).generation.prompts


async def at_work(preparation: PreparationProcesses) -> tuple[asyncio.Task[PreparedChat], int]:
    """A job that does not end, and the process that does it."""
    await prepared(preparation, "hello")
    busy = who_works(preparation)
    work = asyncio.create_task(prepared(preparation, "loop"))
    await until(lambda: bool(busy()))
    return work, busy()[0]


def who_works(preparation: PreparationProcesses) -> Callable[[], list[int]]:
    """The processes that have used a tenth of a second since they were first seen."""
    first_seen: dict[int, int] = {}

    def busy() -> list[int]:
        spent = {pid: _cpu_ticks(pid) for pid in preparation.pids if not _has_ended(pid)}
        return [
            pid for pid, ticks in spent.items() if ticks > first_seen.setdefault(pid, ticks) + 9
        ]

    busy()
    return busy


async def leave(
    preparation: PreparationProcesses, work: asyncio.Task[PreparedChat], pid: int
) -> None:
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: pid not in preparation.pids and _has_ended(pid))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _has_ended(pid: int) -> bool:
    return _stat(pid)[:1] in ([], ["Z"])


def _cpu_ticks(pid: int) -> int:
    return int(_stat(pid)[11])


async def test_a_job_that_ends_soon_keeps_its_process_though_its_client_has_left(
    preparation: PreparationProcesses,
) -> None:
    await until(lambda: len(preparation.pids) > 1)
    before = preparation.pids
    work = asyncio.create_task(prepared(preparation, "hello"))
    for _ in range(3):
        await asyncio.sleep(0)  # it has begun
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await prepared(preparation, "hello", "again")).generation.prompts
    assert set(before) <= set(preparation.pids)


async def test_who_waits_behind_a_crowd_of_another_key_is_served(
    preparation: PreparationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "JOB_SECONDS", 0.5)
    crowd = [
        asyncio.create_task(preparation.run(chat("loop", "x" * 300_000), Noted(), "crowd"))
        for _ in range(8)
    ]
    await asyncio.sleep(0)
    made = await preparation.run(chat("hello"), Noted(), "me")
    assert isinstance(made, PreparedChat)
    assert sum(task.done() for task in crowd) < 4
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_more_bytes_than_may_be_prepared_at_once_are_refused(
    preparation: PreparationProcesses,
) -> None:
    big = chat("x" * (7 << 20))
    results = await asyncio.gather(
        *(preparation.run(big, Noted(), "me") for _ in range(12)), return_exceptions=True
    )
    assert {type(result) for result in results} == {OverloadedError, ContextTooLongError}


async def test_a_process_loads_neither_the_web_framework_nor_torch() -> None:
    code = (
        "import sys, service.preparation.__main__\n"
        "print([name for name in ('litestar', 'torch', 'granian') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    assert found.stdout.strip() == "[]"


async def test_a_process_ends_without_a_message_where_its_worker_reads_no_longer() -> None:
    arguments = arguments_for(MODEL_DIR, tool_call_parser="auto", reasoning_parser="auto")
    process = subprocess.Popen(
        [sys.executable, "-m", "service.preparation", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    greeting = msgspec.msgpack.encode(SETUP)
    _, errors = process.communicate(FRAME_HEADER.pack(len(greeting)) + greeting)
    assert (errors, process.returncode) == (b"", 0)


async def test_a_thousand_requests_at_once_are_all_prepared(
    preparation: PreparationProcesses,
) -> None:
    made = await asyncio.gather(
        *(preparation.run(chat("hello"), Noted(), "me") for _ in range(1000))
    )
    assert {type(each) for each in made} == {PreparedChat}
