"""A sequence in the service: woken once, continued where it was, reported as one request."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.messages import (
    Admitted,
    Embed,
    Finished,
    FinishReason,
    Generate,
    PrefixMiss,
    PrefixMissReason,
    PromptLogprobs,
    SamplingParams,
    Submit,
    TokenLogprobs,
)
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.errors import EngineFailedError, InvalidRequestError
from tests.service.engine.test_link import finished

PARAMS = SamplingParams(max_tokens=8, prompt_logprobs=0)


def new(task: Generate | Embed | None = None) -> EngineSequence:
    message = Submit(
        handle=1,
        request_id="r",
        prompt_token_ids=[5, 6, 7],
        task=task or Generate(PARAMS),
        arrival_time=1.0,
    )
    return EngineSequence(1, 3, 1.0, Waker(), message=message)


def logprobs(count: int) -> list[TokenLogprobs]:
    return [TokenLogprobs(-float(place), place) for place in range(count)]


# --- the waker ------------------------------------------------------------------------------------


async def test_wake_ups_before_the_wait_are_kept_and_count_as_one() -> None:
    waker = Waker()
    waker.wake()
    waker.wake()
    await asyncio.wait_for(waker.wait(), 1)
    waiting = asyncio.ensure_future(waker.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waker.wake()
    waker.wake()
    await asyncio.wait_for(waiting, 1)


async def test_a_follower_is_called_for_each_wake_up_and_for_the_one_before() -> None:
    waker, calls = Waker(), 0

    def call() -> None:
        nonlocal calls
        calls += 1
        waker.clear()

    waker.wake()
    waker.follow(call)
    for expected in (1, 2, 3):
        await asyncio.sleep(0)
        assert calls == expected
        waker.wake()
        waker.wake()  # counts as one with the last
    await asyncio.sleep(0)
    waker.unfollow()
    waker.wake()
    await asyncio.sleep(0)
    assert calls == 4
    await asyncio.wait_for(waker.wait(), 1)  # it was kept for the next wait


async def test_a_wake_up_after_the_look_began_is_not_lost() -> None:
    waker = Waker()
    future = waker.arm()
    assert future is not None
    waker.wake()
    await future
    waker.clear()  # it looks from here on
    waker.wake()
    assert waker.arm() is None


# --- one engine after another ---------------------------------------------------------------------


def test_only_its_first_engine_says_when_it_began() -> None:
    sequence = new()
    miss = PrefixMiss(PrefixMissReason.DIVERGED, "req_1")
    sequence.admit(Admitted(1, 4.0, 2, miss))
    sequence.admit(Admitted(1, 9.0, 0, PrefixMiss(PrefixMissReason.FIRST_SEEN)))
    assert (sequence.first_scheduled_time, sequence.cached_tokens) == (4.0, 2)
    assert sequence.prefix_miss == miss


def test_prompt_logprobs_that_come_again_are_taken_once() -> None:
    sequence, whole = new(), logprobs(5)
    pieces = [(0, 2), (0, 2), (1, 4), (4, 5), (0, 5)]
    for start, end in pieces:
        sequence.add_prompt_logprobs(PromptLogprobs(1, start, whole[start:end]))
    assert sequence.prompt_logprobs == whole


def test_the_next_engine_continues_where_the_last_one_stopped() -> None:
    sequence = new()
    sequence.generated = [8, 9]
    assert sequence.message is not None
    resumed = sequence.resumption()
    assert resumed == msgspec.structs.replace(
        sequence.message, task=Generate(PARAMS, output_token_ids=[8, 9])
    )
    sequence.prompt_logprobs = logprobs(2)  # all there are of three tokens
    again = sequence.resumption().task
    assert isinstance(again, Generate)
    assert again.params.prompt_logprobs is None


def test_a_request_for_a_vector_starts_over() -> None:
    sequence = new(Embed())
    assert sequence.resumption() is sequence.message


def test_tokens_of_the_present_engine_are_counted_by_themselves() -> None:
    sequence = new()
    sequence.generated, sequence.resumed_at = [1, 2, 3], 2
    assert sequence.life_tokens == 1


# --- the end --------------------------------------------------------------------------------------


def test_an_end_after_a_handover_covers_all_engines() -> None:
    sequence = new()
    sequence.first_scheduled_time, sequence.first_token_time = 0.25, 0.5
    sequence.last_token_time, sequence.cached_tokens, sequence.handovers = 7.0, 2, 1
    sequence.end(finished(1, 4))
    told = sequence.finished
    assert told is not None
    assert (told.handovers, told.cached_tokens) == (1, 2)
    times = (told.first_scheduled_time, told.first_token_time, told.last_token_time)
    assert times == (0.25, 0.5, 7.0)
    alone = new()
    alone.end(finished(1, 4))
    assert alone.finished == finished(1, 4)


@pytest.mark.parametrize("reason", list(FinishReason))
@pytest.mark.parametrize("is_refusal", [True, False])
def test_an_end_is_an_error_unless_the_model_came_to_it(
    reason: FinishReason, is_refusal: bool
) -> None:
    sequence = new()
    assert sequence.error is None
    sequence.finished = msgspec.structs.replace(
        finished(1, 2), reason=reason, error="it cannot", is_refusal=is_refusal
    )
    if reason in (FinishReason.STOP, FinishReason.LENGTH):
        assert sequence.error is None
    else:
        kind = InvalidRequestError if is_refusal else EngineFailedError
        assert isinstance(sequence.error, kind)
        assert "it cannot" in str(sequence.error)
    sequence.failure = EngineFailedError("gone")
    assert sequence.error is sequence.failure


def test_it_is_open_until_it_has_ended() -> None:
    sequence = new()
    for state in SequenceState:
        sequence.state = state
        assert sequence.is_open is (state is not SequenceState.ENDED)


def test_a_record_is_the_engine_s_where_it_counts_what_the_client_got() -> None:
    sequence = new()
    sequence.end(msgspec.structs.replace(finished(1, 4), preemptions=2))
    sequence.queued_time = 0.5
    assert sequence.record(4, 9.0) == msgspec.structs.replace(sequence.finished, queued_time=0.5)
    cut = sequence.record(3, 9.0)  # by a stop string
    assert isinstance(cut, Finished)
    assert (cut.reason, cut.output_tokens, cut.finished_time) == (FinishReason.ABORT, 3, 9.0)
    assert (cut.prompt_tokens, cut.preemptions, cut.queued_time) == (3, 2, 0.5)
    failed = new()
    failed.failure = EngineFailedError("gone")
    assert failed.record(0, 9.0).reason is FinishReason.ERROR
    assert failed.record(0, 9.0).error == "gone"
