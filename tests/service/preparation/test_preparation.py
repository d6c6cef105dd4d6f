"""A request is prepared in one call: here or in a process, with its grammar compiled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.messages import Ready
from pocket import MODEL_DIR
from service.checkpoint.checkpoint import load_checkpoint
from service.constraint.trial import GrammarTrial
from service.errors import InvalidRequestError, LoadingError, OverloadedError
from service.preparation.chat import CHAT
from service.preparation.completions import COMPLETION
from service.preparation.jobs import Form, Noted, Prepared
from service.preparation.preparation import IN_LOOP_BYTES, Preparation, RequestContext
from service.preparation.processes import PreparationProcesses, arguments_for
from service.preparation.steps import FORM
from service.preparation.tokenize import TOKENIZE
from service.preparation.work import Model
from service.tenants.caller import Caller
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal
from tests.service.exponential_tokenizer import write_exponential_tokenizer
from tests.service.preparation.bodies import USER
from tests.service.preparation.prepared import LIMITS, SETUP, engine, model
from tests.service.tiny_checkpoint import write_tiny_checkpoint


class NoProcesses:
    """Runs nothing; remembers what it was given."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    async def run(self, job: Any, noted: Noted, owner: str) -> Prepared:
        self.jobs.append((job.step, owner))
        return Prepared(noted=noted)


async def stay(work: Awaitable[Any]) -> Any:
    return await work


def context(admit: Any = engine) -> RequestContext:
    return RequestContext("req_1", 1.5, Caller(owner="me"), admit, stay)


def preparation(of: Model, processes: Any, trial: Any = None) -> Preparation:
    return Preparation(of, LIMITS, processes, trial)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole() -> AsyncIterator[Preparation]:
    """With its processes."""
    arguments = arguments_for(MODEL_DIR, tool_call_parser="auto", reasoning_parser="auto")
    processes = PreparationProcesses(arguments, SETUP)
    made = preparation(model(), processes, GrammarTrial(MODEL_DIR))
    yield made
    await made.close()


def chat(**fields: Any) -> bytes:
    return json.dumps({"messages": USER, **fields}).encode()


async def test_only_our_own_template_and_a_cheap_tokenizer_are_used_on_the_loop(
    tmp_path: Path,
) -> None:
    directory = write_tiny_checkpoint(tmp_path / "tiny")
    config = directory / "tokenizer_config.json"
    fields = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps({**fields, "chat_template": "{{ messages[0].content }}"}))
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    other = Model(load_checkpoint(directory), Signer("a"), ReasoningSeal(SETUP.sealing_key))
    stranger = load_checkpoint(write_exponential_tokenizer(tmp_path / "stranger"))
    assert stranger.has_own_template
    for of, step, size, is_quick in (
        (model(), CHAT, 100, True),
        (model(), CHAT, IN_LOOP_BYTES + 1, False),
        (other, CHAT, 100, False),
        (other, TOKENIZE, 100, False),  # its body may have messages
        (other, COMPLETION, 100, True),
        (other, FORM, 100, True),
        (Model(stranger, other.signer, other.seal), CHAT, 100, False),
        (Model(stranger, other.signer, other.seal), COMPLETION, 100, False),
    ):
        assert preparation(of, NoProcesses()).is_quick(step, size) is is_quick


async def test_a_small_body_needs_no_process_and_a_large_one_is_not_decoded_here() -> None:
    processes = NoProcesses()
    front, noted = preparation(model(), processes), Noted()
    made = await front.prepare(CHAT, chat(), context(), noted)
    assert made.generation.request_id == "req_1"
    assert processes.jobs == []
    large = chat(user="u" * IN_LOOP_BYTES, stream=True)
    await front.prepare(CHAT, large, context(), noted)
    assert processes.jobs == [("chat", "me")]
    assert not noted.stream


@pytest.mark.parametrize("size", [0, IN_LOOP_BYTES])
async def test_nothing_is_prepared_for_a_request_that_is_not_admitted(size: int) -> None:
    processes, noted = NoProcesses(), Noted()

    def refuse() -> Ready:
        raise OverloadedError("full")

    unsound = chat(chat_template_kwargs={"moon": 1}, stream=True, user="u" * (size % 512))
    with pytest.raises(OverloadedError):
        await preparation(model(), processes).prepare(
            CHAT, unsound + b" " * size, context(refuse), noted
        )
    assert processes.jobs == []
    assert noted.stream is (size == 0)


async def test_a_body_that_cannot_be_read_is_rejected_before_admission() -> None:
    def refuse() -> Ready:
        raise LoadingError("loading")

    with pytest.raises(InvalidRequestError):
        await preparation(model(), NoProcesses()).prepare(
            CHAT, b'{"messages": []}', context(refuse), Noted()
        )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("size", [0, IN_LOOP_BYTES])
async def test_a_constraint_is_compiled_in_the_same_call_here_and_in_a_process(
    whole: Preparation, size: int
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "description": "x" * size,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    made = await whole.prepare(CHAT, chat(response_format=form), context(), Noted())
    assert made.asked is None
    assert made.generation.params.constraint is not None
    assert "integer" in made.generation.params.constraint.grammar
    with pytest.raises(InvalidRequestError) as refused:
        await whole.prepare(CHAT, chat(guided_regex="(?=a)"), context(), Noted())
    assert refused.value.param == "guided_regex"


class OnlyForms(NoProcesses):
    """Returns empty forms."""

    async def run(self, job: Any, noted: Noted, owner: str) -> Prepared:
        await super().run(job, noted, owner)
        return Form(noted=noted)


@pytest.mark.parametrize("keyword", ["$ref", "allOf", "anyOf", "oneOf"])
async def test_schemas_that_combine_much_are_not_written_here(keyword: str) -> None:
    async def jobs(number: int, **more: Any) -> list[Any]:
        processes = OnlyForms()
        properties = {f"p{n}": {"type": "string"} for n in range(number)}
        schema = {"type": "object", "properties": properties, **more}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = chat(tools=[tool], tool_choice="required")
        assert len(body) < IN_LOOP_BYTES
        trial: Any = AcceptAll()
        await preparation(model(), processes, trial).prepare(CHAT, body, context(), Noted())
        return processes.jobs

    assert await jobs(100) == []
    assert await jobs(1, **{keyword: []}) == []
    assert await jobs(100, **{keyword: []}) == [("form", "me")]


class AcceptAll:
    async def try_out(self, constraint: Any, owner: str) -> None:
        """Accept the grammar."""
