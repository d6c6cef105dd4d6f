"""What a request asks becomes a message for each choice, sent as one."""

from __future__ import annotations

import itertools
from dataclasses import replace

from engine.messages import Copy, Embed, Generate, SamplingParams
from engine.queueing import ServiceClass
from service.engine.submission import together
from tests.service.engine.test_link import KEY, submission

PARAMS = SamplingParams(max_tokens=4, seed=9)


def test_without_seeds_there_is_one_choice_with_the_seed_of_its_parameters() -> None:
    [message] = submission([1], PARAMS).messages(itertools.count(5))
    assert (message.handle, message.task) == (5, Generate(PARAMS))
    assert together([message]) is message


def test_choices_differ_by_handle_and_seed_and_travel_together() -> None:
    messages = submission([1], PARAMS, seeds=[7, 8]).messages(itertools.count(5))
    first, second = messages
    assert (first.handle, second.handle) == (5, 6)
    assert second.task == Generate(SamplingParams(max_tokens=4, seed=8))
    assert together(messages).copies == [Copy(6, 8)]
    assert first.copies == []


def test_the_caller_decides_on_priority_and_salt() -> None:
    asked = submission([1], Embed(dimensions=2), KEY, priority=-3, cache_salt="mine")
    [message] = asked.messages(itertools.count(1))
    assert (message.priority, message.cache_salt) == (0, KEY.cache_salt("mine"))


def test_the_engine_learns_the_tenant_its_weight_and_class_if_several_share_it() -> None:
    caller = replace(KEY, weight=2.5, service_class=ServiceClass.BATCH)
    [message] = submission([1], PARAMS, caller).messages(itertools.count(1))
    assert message.tenant
    assert KEY.owner.startswith(message.tenant)
    assert (message.weight, message.service_class) == (2.5, ServiceClass.BATCH)
    [alone] = submission([1], PARAMS, replace(caller, shares=False)).messages(itertools.count(1))
    assert alone.tenant == ""
