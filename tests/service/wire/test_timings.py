"""Timings of an answer, from the times that the engine recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.messages import SamplingParams
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.generation.generator import Generator
from service.generation.request import Generation, GenerationRequest
from service.tenants.caller import ANYBODY
from service.wire.timings import timings_of
from tests.service.at_once import at_once
from tests.service.wire.chat.test_answer import Desk, Played, one_each


@pytest.fixture(scope="module")
def checkpoint(tiny_model: Path) -> Checkpoint:
    return load_checkpoint(tiny_model)


def recorded(generation: Generation, **times: float) -> None:
    """As if the engine had said so of the only choice. The request came at 0."""
    (choice,) = generation.choices
    assert choice.sequence.finished is not None
    choice.sequence.finished = msgspec.structs.replace(
        choice.sequence.finished, output_tokens=len(choice.tokens), **times
    )


def test_times_count_from_arrival_and_rates_between_tokens(checkpoint: Checkpoint) -> None:
    generation = Played(checkpoint, "one two three four", one_each()).generation
    recorded(generation, first_scheduled_time=0.5, first_token_time=1.0, last_token_time=3.0)
    timings = timings_of(generation)
    gaps = generation.output_tokens - 1
    assert gaps > 1
    assert timings.queue_ms == 500
    assert timings.time_to_first_token_ms == 1000
    assert timings.total_ms == 3000
    assert timings.mean_itl_ms == pytest.approx(2000 / gaps, abs=0.001)
    assert timings.prompt_tokens_per_second == 6  # three tokens in half a second
    assert timings.output_tokens_per_second == pytest.approx(gaps / 2, abs=0.05)


def test_a_single_token_has_no_time_between_tokens(checkpoint: Checkpoint) -> None:
    generation = Played(checkpoint, "x", one_each()).generation
    assert generation.output_tokens == 1
    recorded(generation, first_scheduled_time=0.5, first_token_time=1.0, last_token_time=1.0)
    timings = timings_of(generation)
    assert timings.total_ms == 1000
    assert timings.mean_itl_ms is None
    assert timings.output_tokens_per_second is None


def test_a_phase_that_was_never_reached_is_null(checkpoint: Checkpoint) -> None:
    request = GenerationRequest("r", [[1, 2, 3]], SamplingParams(max_tokens=9), 0.0)
    generation = at_once(Generator(Desk(), checkpoint).start(request, ANYBODY))
    assert set(msgspec.to_builtins(timings_of(generation)).values()) == {None}
