"""Where a request is prepared makes no difference: the same result, and the same error."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from pocket import MODEL_DIR
from service.errors import QuireError
from service.preparation.jobs import (
    Asked,
    FormJob,
    History,
    ItemsJob,
    Job,
    Noted,
    Prepared,
    PreparedInputs,
)
from service.preparation.processes import PreparationProcesses, arguments_for
from service.preparation.sending import lightened
from service.preparation.steps import STEPS, perform
from service.preparation.work import Work
from tests.service.preparation.bodies import CASES, RESPONSES, USER, Case, case
from tests.service.preparation.prepared import LIMITS, SETUP, engine, model

pytestmark = pytest.mark.asyncio(loop_scope="module")


def new_preparation() -> PreparationProcesses:
    arguments = arguments_for(MODEL_DIR, tool_call_parser="auto", reasoning_parser="auto")
    return PreparationProcesses(arguments, SETUP)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def preparation() -> AsyncIterator[PreparationProcesses]:
    preparation = new_preparation()
    yield preparation
    await preparation.close()


def comparable(made: Prepared) -> Any:
    """A result as it is after its way through a pipe."""
    request = getattr(made, "request", None)
    if request is not None:
        made = msgspec.structs.replace(made, request=lightened(request))  # type: ignore[call-arg]
    if isinstance(made, PreparedInputs):
        inputs = [dataclasses.replace(one, token_ids=list(one.token_ids)) for one in made.inputs]
        made = msgspec.structs.replace(made, inputs=inputs)
    return made


async def both(preparation: PreparationProcesses, job: Job) -> tuple[Any, Any]:
    """What comes of a job here and there: a result or an error, and what was noted."""
    here = Noted()
    try:
        made: Any = comparable(perform(Work(job, here, model())))
    except QuireError as error:
        made = (type(error), error.message, error.param, error.status)
    there = Noted()
    try:
        sent: Any = comparable(await preparation.run(job, there, "me"))
    except QuireError as error:
        sent = (type(error), error.message, error.param, error.status)
    return (made, here), (sent, there)


def job_of(one: Case, **fields: Any) -> Job:
    return STEPS[one.step].job(
        step=one.step,
        body=one.body,
        limits=LIMITS,
        engine=engine(),
        request_id="req_1",
        arrival_time=1.5,
        **one.fields,
        **fields,
    )


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
async def test_a_request_comes_to_the_same(preparation: PreparationProcesses, one: Case) -> None:
    here, there = await both(preparation, job_of(one))
    assert here == there


@pytest.mark.parametrize("step", STEPS)
async def test_every_step_has_a_case(step: str) -> None:
    assert any(one.step == step for one in CASES) or step in ("items", "form")


HISTORY = History(
    context=b'[{"role":"user","content":"before","id":"msg_a"}]',
    input=b'[{"role":"user","content":"then","id":"msg_b"}]',
    body=b'{"output":[{"type":"message","role":"assistant","id":"msg_%b_0","content":"so"}]}'
    % (b"1" * 32),
)


@pytest.mark.parametrize("item", ["msg_a", "msg_" + "1" * 32 + "_0", "msg_x"])
@pytest.mark.parametrize("previous", [None, HISTORY])
async def test_a_history_comes_to_the_same(
    preparation: PreparationProcesses, item: str, previous: History | None
) -> None:
    key = "resp_" + "1" * 32
    body = {"input": [*USER, {"type": "item_reference", "id": item}]}
    one = case("stored", "responses", body, **RESPONSES)
    job = job_of(one, stored=True, previous=previous, referred={key: HISTORY})
    here, there = await both(preparation, job)
    assert here == there


@pytest.mark.parametrize(("after", "newest_first"), [(None, True), ("msg_a", False), ("x", True)])
async def test_stored_items_are_listed_the_same(
    preparation: PreparationProcesses, after: str | None, newest_first: bool
) -> None:
    job = ItemsJob(
        step="items",
        body=b"",
        limits=LIMITS,
        engine=engine(),
        stored=HISTORY,
        limit=1,
        newest_first=newest_first,
        after=after,
    )
    here, there = await both(preparation, job)
    assert here == there


@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize(
    "one", [one for one in CASES if "form" in one.name or "tools" in one.name], ids=str
)
async def test_a_form_is_written_the_same(
    preparation: PreparationProcesses, one: Case, parts: bool
) -> None:
    try:
        made = perform(Work(job_of(one), Noted(), model()))
    except QuireError:
        return
    asked: Asked | None = getattr(made, "asked", None)
    if asked is None:
        return
    job = FormJob(step="form", body=b"", limits=LIMITS, engine=engine(), asked=asked, parts=parts)
    here, there = await both(preparation, job)
    assert here == there
    assert here[0].constraint is not None
