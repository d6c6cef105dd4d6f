"""A call that generates can be ended by its own key, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import SamplingParams
from service.checkpoint.checkpoint import load_checkpoint
from service.errors import ClientGoneError, NotFoundError
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.serving.running import RunningCalls
from service.tenants.caller import ANYBODY
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk


@pytest.fixture
def generation(tiny_model: Path) -> Generation:
    """One that runs, under the id ``mine``."""
    request = GenerationRequest("mine", [[1, 2, 3]], SamplingParams(max_tokens=9), 0.0)
    return at_once(Generator(Desk(), load_checkpoint(tiny_model)).start(request, ANYBODY))


def test_an_aborted_call_ends_as_one_whose_client_left(generation: Generation) -> None:
    calls = RunningCalls()
    with calls.holding("owner", generation):
        calls.abort("mine", "owner")
        with pytest.raises(ClientGoneError, match="aborted"):
            generation.collect()


@pytest.mark.parametrize(("request_id", "owner"), [("mine", "other"), ("mine", ""), ("x", "owner")])
def test_a_response_of_another_key_is_not_found_and_continues(
    generation: Generation, request_id: str, owner: str
) -> None:
    calls = RunningCalls()
    with calls.holding("owner", generation):
        with pytest.raises(NotFoundError) as refused:
            calls.abort(request_id, owner)
        assert refused.value.param == "request_id"
        assert generation.collect() == generation.choices
    assert not generation.done


def test_a_call_that_has_ended_is_not_found(generation: Generation) -> None:
    calls = RunningCalls()
    with pytest.raises(ZeroDivisionError), calls.holding("owner", generation):
        raise ZeroDivisionError
    with pytest.raises(NotFoundError):
        calls.abort("mine", "owner")
