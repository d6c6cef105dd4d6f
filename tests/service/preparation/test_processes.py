"""Preparation processes are bounded in time and memory, and end when nobody wants their work."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from service.checkpoint import load_checkpoint
from service.errors import ContextTooLongError, InvalidRequestError, OverloadedError
from service.preparation import processes
from service.preparation.jobs import ChatJob, Noted, PreparedChat, TokenizeJob
from service.preparation.processes import Preparation, arguments_for
from service.preparation.steps import Model
from service.wire.responses_seal import ReasoningSeal
from service.wire.signatures import Signer
from tests.service.preparation.test_both_ways import LIMITS, SETUP, engine
from tests.service.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Each of a conversation's messages may ask for something else.
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
async def preparation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Preparation]:
    directory = write_tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")
    config = directory / "tokenizer_config.json"
    fields = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps({**fields, "chat_template": TEMPLATE}))
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    model = Model(
        load_checkpoint(directory), Signer(SETUP.signing_key), ReasoningSeal(SETUP.sealing_key)
    )
    arguments = arguments_for(directory, tool_call_parser="auto", reasoning_parser="auto")
    made = Preparation(model, arguments, SETUP)
    await made.run(chat("hello"), Noted(), "me")  # a process is up
    yield made
    await made.close()


def chat(*contents: str, context: int = 4096) -> ChatJob:
    messages = [{"role": "user", "content": content} for content in contents]
    return ChatJob(
        body=json.dumps({"messages": messages}).encode(),
        limits=LIMITS,
        engine=engine(vocab_size=300, max_model_len=context),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def prepared(preparation: Preparation, *contents: str) -> PreparedChat:
    made = await preparation.run(chat(*contents), Noted(), "me")
    assert isinstance(made, PreparedChat)
    return made


async def test_a_template_of_our_own_alone_is_rendered_on_the_event_loop(
    preparation: Preparation,
) -> None:
    assert not preparation.is_quick(chat("hello"))
    # Nobody's template is asked for a text's tokens, but a request for them may ask for it.
    job = TokenizeJob(body=b'{"prompt": "a"}', limits=LIMITS, engine=engine())
    assert not preparation.is_quick(job)


async def test_a_template_that_does_not_end_is_ended(
    preparation: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    [before] = preparation.pids
    with monkeypatch.context() as shorter:
        shorter.setattr(processes, "JOB_SECONDS", 0.5)
        with pytest.raises(InvalidRequestError, match="chat template took more than") as refused:
            await prepared(preparation, "loop")
    assert refused.value.param == "messages"
    assert refused.value.status == 400
    assert preparation.pids == []
    await until(lambda: _has_ended(before))
    assert (await prepared(preparation, "hello")).generation.prompts


async def test_memory_is_bounded(preparation: Preparation) -> None:
    with pytest.raises(InvalidRequestError, match=r"memory|limits|characters"):
        await prepared(preparation, "fill")
    assert (await prepared(preparation, "hello")).generation.prompts


async def test_a_job_that_nobody_wants_any_more_is_ended(preparation: Preparation) -> None:
    await prepared(preparation, "hello")
    [pid] = preparation.pids
    spent = _cpu_ticks(pid)
    work = asyncio.create_task(prepared(preparation, "loop"))
    await until(lambda: _cpu_ticks(pid) > spent)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: pid not in preparation.pids and _has_ended(pid))
    assert (await prepared(preparation, "hello")).generation.prompts


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _has_ended(pid: int) -> bool:
    return _stat(pid)[:1] in ([], ["Z"])


def _cpu_ticks(pid: int) -> int:
    return int(_stat(pid)[11])


async def test_a_job_that_ends_soon_keeps_its_process_though_its_client_has_left(
    preparation: Preparation,
) -> None:
    await prepared(preparation, "hello")
    [pid] = preparation.pids
    work = asyncio.create_task(prepared(preparation, "hello"))
    for _ in range(3):
        await asyncio.sleep(0)  # it has begun
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await prepared(preparation, "hello", "again")).generation.prompts
    assert pid in preparation.pids


async def test_who_waits_behind_a_crowd_of_another_key_is_served(
    preparation: Preparation, monkeypatch: pytest.MonkeyPatch
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
    preparation: Preparation,
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
