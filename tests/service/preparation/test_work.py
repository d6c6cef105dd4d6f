"""The two halves of a step: a body is read, and what its record says is noted, before any work."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from service.errors import InvalidRequestError, ModelNotFoundError
from service.preparation.jobs import Noted
from service.preparation.steps import STEPS
from service.preparation.work import ignored_of
from tests.service.preparation.prepared import LIMITS, work_of

REFUSING = msgspec.structs.replace(LIMITS, refuse_unknown=True)


def read(body: bytes, limits: Any = LIMITS) -> Noted:
    noted = Noted()
    STEPS["completion"].read(body, limits, noted)
    return noted


def test_reading_notes_what_the_record_says_of_a_request() -> None:
    noted = read(b'{"prompt":"Hi","stream":true,"request_id":"mine","temprature":1}')
    assert (noted.model, noted.stream, noted.client_request_id) == ("pocket", True, "mine")
    assert noted.ignored == ["temprature"]
    assert noted.meant == {"temprature": "temperature"}


def test_where_unknown_fields_are_refused_reading_raises() -> None:
    with pytest.raises(InvalidRequestError, match="temperature") as refused:
        read(b'{"prompt":"Hi","temprature":1}', REFUSING)
    assert refused.value.param == "temprature"


def test_of_a_model_that_is_not_here_all_but_its_name_is_noted() -> None:
    noted = Noted()
    with pytest.raises(ModelNotFoundError):
        STEPS["completion"].read(b'{"prompt":"a","model":"x","stream":true}', LIMITS, noted)
    assert (noted.model, noted.stream) == ("", True)


@pytest.mark.parametrize("model", ["pocket", "their text", 3, None])
def test_a_body_with_a_wrong_field_is_still_of_the_model_that_it_names(model: Any) -> None:
    body = json.dumps({"model": model, "prompt": "a", "max_tokens": -1}).encode()
    noted = Noted()
    with pytest.raises(InvalidRequestError):
        STEPS["completion"].read(body, LIMITS, noted)
    assert noted.model == ("pocket" if model == "pocket" else "")


def test_a_step_without_a_body_reads_none() -> None:
    noted = Noted()
    assert STEPS["items"].read(b"not JSON", LIMITS, noted) is None
    assert noted == Noted()


def test_what_is_found_later_is_noted_too() -> None:
    noted = Noted()
    ignored_of(LIMITS, noted).add("input[0]")
    assert noted.ignored == ["input[0]"]
    work = work_of("chat", {"messages": []})
    assert work.context == work.job.engine.max_model_len
