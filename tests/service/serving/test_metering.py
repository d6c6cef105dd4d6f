"""Requests count against their keys' limits, and the day's usage is what the store says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from engine.messages import SamplingParams
from observability.admin_api import UsageRow
from service.api_keys import api_keys
from service.errors import QuotaError, StoreUnavailableError
from service.generation.request import GenerationRequest
from service.serving import metering
from service.serving.keys import KeyRing
from service.serving.metering import UNLIMITED_TOKENS, Metering, tokens_of
from service.tenants.caller import ANYBODY, Caller
from service.tenants.key_limits import KeyLimits
from service.tenants.stored_key import KeyGrant, new_key
from tests.service.request_records import sequence
from tests.service.serving.by_hand import record

TEAM = Caller(owner="ab", alias="team", limits=KeyLimits(requests_per_minute=5))


def request(max_tokens: int, **fields: object) -> GenerationRequest:
    params = SamplingParams(max_tokens=max_tokens)
    return GenerationRequest("req", [[1, 2, 3], [4]], params, 0.0, n=2, **fields)  # type: ignore[arg-type]


def test_a_generation_reserves_its_prompts_and_all_that_it_may_generate() -> None:
    assert tokens_of(request(10)) == 4 + 4 * 10
    assert tokens_of(request(10, sets_limit=False)) == 4 + 4 * 10
    assert tokens_of(request(10**6, sets_limit=False)) == 4 + 4 * UNLIMITED_TOKENS


def test_a_caller_without_limits_maps_no_memory() -> None:
    metered = Metering()
    assert metered.enter(ANYBODY) is None
    assert metered._ledger is None


@pytest.mark.parametrize(
    ("outcome", "left"), [("stop", 4), ("client_gone", 4), ("refused:limit", 5)]
)
def test_a_refused_request_is_given_back(outcome: str, left: int) -> None:
    metered = Metering()
    use = metered.enter(TEAM)
    assert use is not None
    ended = record()
    ended.outcome = outcome
    metered.settle(use, ended)
    assert metered.state(TEAM).requests_left == left


def test_prompt_and_output_of_an_ended_request_count_and_what_it_did_not_use_is_spared() -> None:
    team = Caller(owner="ab", alias="team", limits=KeyLimits(tokens_per_minute=100))
    metered = Metering()
    use = metered.enter(team)
    assert use is not None
    metered.take(use, 50)
    ended = record()
    ended.outcome, ended.prompt_tokens, ended.output_tokens = "stop", 20, 3
    ended.sequences = [sequence()]
    metered.settle(use, ended)
    assert metered.state(team).tokens_left == 100 - 20 - 3


class Store:
    """Is away at first."""

    def __init__(self) -> None:
        self.asked = 0

    async def usage(self, by: str, start: float, end: float, bucket: str) -> Sequence[UsageRow]:
        self.asked += 1
        if self.asked == 1:
            raise StoreUnavailableError("away")
        assert (by, bucket, end - start) == ("key", "day", 86_400)
        assert start <= time.time() < end
        none = {"requests": 1, "errors": 0, "cached_tokens": 0, "reasoning_tokens": 0}
        return [
            UsageRow(
                start=start, group=group, prompt_tokens=60, output_tokens=40, seconds=1.0, **none
            )
            for group in ("team", "other-team")
        ]


async def test_the_day_s_usage_of_before_the_start_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "_FIRST_SECONDS", 0.001)
    ring, store, metered = KeyRing(api_keys(["sk-one"]), changes=True), Store(), Metering()
    ring.replace([new_key(KeyGrant(alias="team", tokens_per_day=100))[0]])
    following = asyncio.create_task(metered.follow(ring, store))
    while metered.ledger.used_today("team") == 0:
        await asyncio.sleep(0)
    following.cancel()
    assert metered.ledger.used_today("team") == 100
    assert metered.ledger.used_today("other-team") == 0
    with pytest.raises(QuotaError):
        metered.enter(Caller(alias="team", limits=KeyLimits(tokens_per_day=100)))
