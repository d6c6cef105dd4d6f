"""Jobs and errors come out of a pipe as they went in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service import errors
from service.errors import ContextTooLongError, InternalError, ModelNotFoundError, QuireError
from service.preparation.jobs import (
    AnyJob,
    Asked,
    Failed,
    FormJob,
    History,
    ItemsJob,
    Job,
    Noted,
    Reply,
    ResponsesJob,
    Stage,
    error_of,
    failure,
    too_much_memory,
    too_slow,
)
from tests.service.preparation.prepared import LIMITS, engine

HISTORY = History(context=b"[1]", input=b"[22]", body=b"{}")
COMMON: dict[str, Any] = {"limits": LIMITS, "engine": engine()}
JOBS = (
    Job(step="chat", body=b"12345", **COMMON),
    ResponsesJob(
        step="responses",
        body=b"12345",
        owner="me",
        response_id="resp_1",
        previous=HISTORY,
        referred={"resp_2": HISTORY},
        **COMMON,
    ),
    ItemsJob(step="items", body=b"", stored=HISTORY, limit=2, newest_first=True, **COMMON),
    FormJob(step="form", body=b"", asked=Asked(request=b"{...}"), **COMMON),
)
ERRORS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: type(job).__name__)
def test_a_job_is_the_same_at_the_other_end(job: Job) -> None:
    sent = msgspec.msgpack.encode(job)
    assert msgspec.msgpack.decode(sent, type=AnyJob) == job


def test_a_job_is_as_large_as_all_that_there_is_work_on() -> None:
    assert [job.size for job in JOBS] == [5, 5 + 2 * 9, 9, 5]


@pytest.mark.parametrize(
    "kind", [kind for kind in ERRORS if issubclass(kind, QuireError) and kind is not QuireError]
)
def test_an_error_is_the_same_at_the_other_end(kind: type[QuireError]) -> None:
    error = kind("It is so.", param="input[0]", retry_after=3)
    sent = msgspec.msgpack.encode(failure(error, Noted(model="m")))
    failed = msgspec.msgpack.decode(sent, type=Reply)
    assert isinstance(failed, Failed)
    assert failed.noted.model == "m"
    again = error_of(failed)
    assert type(again) is kind
    assert (again.message, again.param, again.retry_after) == ("It is so.", "input[0]", 3)


def test_an_error_that_nobody_knows_is_a_fault_of_ours() -> None:
    assert type(error_of(Failed("NoSuchError", "m", None, Noted()))) is InternalError


def test_a_model_goes_by_any_of_its_names_and_answers_under_the_one_asked_for() -> None:
    limits = msgspec.structs.replace(LIMITS, names=("own", "alias"))
    assert [limits.model_name(name) for name in (None, "own", "alias")] == ["own", "own", "alias"]
    with pytest.raises(ModelNotFoundError, match="own, alias") as refused:
        limits.model_name("other")
    assert refused.value.param == "model"


@pytest.mark.parametrize("made", [too_much_memory, lambda reached: too_slow(reached, 10.0)])
def test_a_prompt_that_cannot_be_tokenized_is_too_long(made: Any) -> None:
    """Agents shorten the conversation for this error, and give up for others."""
    error = made(Stage("tokenizer", "messages"))
    assert isinstance(error, ContextTooLongError)
    assert "prompt is too long" in error.message
    assert error.param == "messages"
    for reached in (Stage("template", "messages"), Stage("")):
        assert not isinstance(made(reached), ContextTooLongError)
