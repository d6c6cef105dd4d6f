"""Outputs that were not sent to a connection yet, and the message that sends them."""

from __future__ import annotations

import pytest

from engine.loop.outbox import Outbox, StepFigures, phase_of, step_outputs
from engine.messages import (
    Admitted,
    EngineStats,
    Finished,
    FinishReason,
    PromptLogprobs,
    SamplingParams,
    StepPhase,
    TokenLogprobs,
)
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.loop.listening import engine, tokens

FINISHED = Finished(
    handle=7,
    reason=FinishReason.ABORT,
    prompt_tokens=3,
    output_tokens=0,
    cached_tokens=0,
    preemptions=0,
    arrival_time=1.0,
    first_scheduled_time=None,
    first_token_time=None,
    last_token_time=None,
    finished_time=2.0,
)


def stats() -> EngineStats:
    return engine().stats()


def item(start: int, num_tokens: int, *, prompt: int = 10) -> ScheduledSequence:
    length = max(prompt, start + num_tokens)
    sequence = Sequence(1, "", [5] * length, prompt, SamplingParams(max_tokens=99))
    return ScheduledSequence(sequence, start, num_tokens, start + num_tokens == length)


@pytest.mark.parametrize(
    ("items", "phase"),
    [
        ([item(10, 1), item(25, 1)], StepPhase.DECODE),
        ([item(0, 10), item(4, 3)], StepPhase.PREFILL),
        ([item(9, 1)], StepPhase.PREFILL),  # the last token of a prompt, by itself
        ([item(0, 1, prompt=1)], StepPhase.PREFILL),
        ([item(0, 12)], StepPhase.PREFILL),  # a prompt and its output, computed again
        ([item(10, 1), item(9, 1)], StepPhase.MIXED),
    ],
)
def test_a_step_is_named_by_what_its_sequences_are_at(
    items: list[ScheduledSequence], phase: StepPhase
) -> None:
    assert phase_of(StepPlan(tuple(items))) is phase


@pytest.mark.parametrize(
    "box",
    [
        Outbox(handles=[1], token_ids=[2]),
        Outbox(finished=[FINISHED]),
        Outbox(admitted=[Admitted(1, 0, 0.0)]),
        Outbox(prompt_logprobs=[PromptLogprobs(1, 0, [])]),
    ],
)
def test_an_outbox_with_any_output_is_not_empty(box: Outbox) -> None:
    assert Outbox().is_empty
    assert not box.is_empty


def test_the_message_holds_all_of_the_box_and_of_the_step() -> None:
    logprobs = {1: TokenLogprobs(-0.5, 1)}
    box = Outbox([2**53, 0], [2**31 - 1, 0], logprobs, finished=[FINISHED])
    figures = StepFigures(StepPhase.MIXED, 0.25, 30, 2)
    now = stats()
    told = step_outputs(box, figures, now)
    assert tokens(told) == [(2**53, 2**31 - 1), (0, 0)]
    assert (told.logprobs, told.finished) == (logprobs, [FINISHED])
    assert (told.phase, told.step_seconds, told.step_tokens, told.step_sequences) == (
        StepPhase.MIXED,
        0.25,
        30,
        2,
    )
    assert (told.stats, told.time) == (now, now.time)
    assert step_outputs(Outbox(), StepFigures(), now).phase is None
