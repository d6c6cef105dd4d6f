"""How much a step that is being planned may still have."""

from __future__ import annotations

import pytest

from engine.messages import SamplingParams
from engine.schedule.draft import Draft
from engine.schedule.pacing import PromptLimits
from engine.schedule.prefix import PrefixCache
from engine.schedule.waiting import WaitingQueue
from engine.step.sequence import Sequence

BUDGET = 64
LENGTH = 16


def sequence(tokens: int, uid: int = 0, prompt_logprobs: int | None = None) -> Sequence:
    params = SamplingParams(max_tokens=9, prompt_logprobs=prompt_logprobs)
    return Sequence(uid, f"r{uid}", [1] * tokens, tokens, params)


def draft(*prompts: Sequence, length: int = LENGTH) -> Draft:
    one = Draft(PrefixCache(100, 4), BUDGET, prompt_logprob_work=4.0)
    one.limit(PromptLimits(length=length), list(prompts), WaitingQueue())
    return one


@pytest.mark.parametrize("budget", [1, 2, 7])
def test_of_two_steps_short_prompts_have_half_even_if_each_has_one_token(budget: int) -> None:
    halves = []
    for step in range(2):
        one = Draft(PrefixCache(100, 4), budget, prompt_logprob_work=1.0)
        before = one.for_short(sequence(100), step)
        halves.append(one.budget)
        one.for_all(*before)
        assert one.budget == budget
    assert sum(halves) == budget
    assert halves[1] - halves[0] <= 1


def test_a_long_prompt_that_is_alone_has_a_part_of_the_budget() -> None:
    long = sequence(60)
    one = draft(long)
    assert one.next_part(long) == LENGTH
    one.take(long, LENGTH)
    assert not one.takes(sequence(60, 1))
    short = sequence(LENGTH, 1)
    assert one.takes(short)
    assert one.next_part(short) == LENGTH


def test_what_is_dropped_leaves_its_part() -> None:
    long = sequence(60)
    one = draft(long)
    one.take(long, LENGTH)
    one.drop(long)
    assert (one.budget, one.next_part(long)) == (BUDGET, LENGTH)


def test_several_that_each_fit_into_a_step_are_not_split_and_longer_ones_are() -> None:
    fitting = sequence(BUDGET)
    assert draft(fitting, sequence(60, 1)).next_part(fitting) == BUDGET
    longer = sequence(BUDGET + 1)
    assert draft(longer, sequence(60, 1)).next_part(longer) == LENGTH


def test_next_to_a_short_prompt_others_have_what_a_short_step_leaves() -> None:
    long, short = sequence(60), sequence(3, 1)
    one = draft(long, short)
    before = one.for_short(long, 0)
    assert one.budget == LENGTH // 2
    one.take(short, 3)
    one.for_all(*before)
    assert one.next_part(long) == LENGTH - 3


def test_prompt_tokens_with_logprobs_count_what_they_cost() -> None:
    long = sequence(LENGTH // 2, prompt_logprobs=0)
    one = draft(long)
    assert one.next_part(long) == LENGTH // 4
    one.take(long, LENGTH // 4)
    assert one.budget == BUDGET - LENGTH
    assert not one.takes(sequence(LENGTH + 1, 1))
