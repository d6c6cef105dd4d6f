"""A load trace has times, lengths and what prompts share, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from engine.messages import Embed, Generate, SamplingParams, Task
from service.engine.submission import Submission
from service.records import load_trace
from service.records.load_trace import BLOCK_TOKENS, LoadTrace, TracedRequest
from service.records.row import Row
from service.tenants.caller import ANYBODY
from tests.service.records.keeping import row
from tests.service.store.stored import until

GENERATE = Generate(SamplingParams(max_tokens=1))


def submission(
    request_id: str,
    tokens: list[int],
    salt: str = "",
    *,
    task: Task = GENERATE,
    seeds: Sequence[int] = (),
) -> Submission:
    return Submission(
        request_id=request_id,
        prompt_token_ids=tokens,
        task=task,
        seeds=seeds,
        caller=ANYBODY,
        arrival_time=0.0,
        cache_salt=salt,
    )


def ended(request_id: str, output_tokens: int = 5) -> Row:
    return row(request_id=request_id, output_tokens=output_tokens)


async def lines(trace: LoadTrace) -> list[TracedRequest]:
    await trace.hashed()
    return [msgspec.json.decode(line, type=TracedRequest) for line in trace.lines()]


async def recorded(*prompts: list[int]) -> list[TracedRequest]:
    trace = LoadTrace()
    trace.start(60)
    for number, tokens in enumerate(prompts):
        trace.submitted(submission(str(number), tokens))
        trace.ended(ended(str(number), number))
    return await lines(trace)


async def test_prompts_that_begin_alike_have_the_same_numbers_up_to_there() -> None:
    shared = list(range(1000, 1000 + 3 * BLOCK_TOKENS))
    one, two, three = await recorded(
        [*shared, *range(BLOCK_TOKENS), 1],
        [*shared, *range(5, 5 + BLOCK_TOKENS)],
        [7, *shared],
    )
    assert one.hash_ids[:3] == two.hash_ids[:3]
    assert one.hash_ids[3] != two.hash_ids[3]
    assert not {*three.hash_ids} & {*one.hash_ids, *two.hash_ids}
    assert [len(line.hash_ids) for line in (one, two, three)] == [4, 4, 3]
    assert (one.input_length, two.output_length) == (4 * BLOCK_TOKENS + 1, 1)


async def test_two_traces_of_the_same_prompts_differ_in_nothing_that_could_be_linked() -> None:
    """The numbers count blocks; they are the same for any prompts that share as much."""
    first = await recorded([1] * 40, [2] * 40)
    second = await recorded([3] * 40, [4] * 40)
    assert [line.hash_ids for line in first] == [line.hash_ids for line in second]


async def test_prompts_with_different_salts_share_nothing() -> None:
    trace = LoadTrace()
    trace.start(60)
    for number, salt in enumerate(["", "a", "a"]):
        trace.submitted(submission(str(number), [1] * 40, salt))
        trace.ended(ended(str(number)))
    one, two, three = await lines(trace)
    assert two.hash_ids == three.hash_ids != one.hash_ids


async def test_only_what_was_submitted_while_recording_and_has_ended_is_in_it() -> None:
    trace = LoadTrace()
    trace.submitted(submission("before", [1]))
    trace.start(60)
    trace.submitted(submission("open", [1]))
    trace.submitted(submission("in", [1]))
    trace.stop()
    trace.submitted(submission("after", [1]))
    for request_id in ("before", "in", "after"):
        trace.ended(ended(request_id))
    assert len(await lines(trace)) == 1
    assert not trace.is_recording
    assert trace.num_requests == 2


async def test_a_request_has_a_line_for_each_prompt_with_its_part_of_the_output() -> None:
    trace = LoadTrace()
    trace.start(60)
    for length in (40, 5):
        trace.submitted(submission("two", [1] * length, seeds=[1, 2]))
    assert trace.num_requests == 2
    trace.ended(ended("two", output_tokens=9))
    found = await lines(trace)
    assert [(one.input_length, one.output_length) for one in found] == [(40, 4), (5, 5)]


async def test_a_beam_search_is_one_line_and_vectors_are_none() -> None:
    trace = LoadTrace()
    trace.start(60)
    for length in (40, 41, 41):  # each step submits its beams
        trace.submitted(submission("search", [1] * length))
    trace.submitted(submission("vector", [1] * 40, task=Embed()))
    trace.ended(ended("search", 2))
    trace.ended(ended("vector", 0))
    assert [(one.input_length, one.output_length) for one in await lines(trace)] == [(40, 2)]


async def test_what_is_left_out_takes_its_part_of_the_output_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_trace, "_MOST_REQUESTS", 1)
    trace = LoadTrace()
    trace.start(60)
    for _ in range(2):
        trace.submitted(submission("two", [1] * 40, seeds=[1]))
    trace.ended(ended("two", output_tokens=8))
    assert [one.output_length for one in await lines(trace)] == [4]
    assert (trace.num_requests, trace.left_out) == (1, 1)


async def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_trace, "_MOST_BLOCKS", 5)
    trace = LoadTrace()
    trace.start(60)
    for number in range(4):
        trace.submitted(submission(str(number), [1] * (2 * BLOCK_TOKENS)))
    assert (trace.num_requests, trace.left_out) == (2, 2)


async def test_too_many_different_blocks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_trace, "_MOST_NUMBERS", 2)
    trace = LoadTrace()
    trace.start(60)
    for number in range(4):
        trace.submitted(submission(str(number), [number] * BLOCK_TOKENS))
        trace.ended(ended(str(number)))
    assert len(await lines(trace)) == 2
    assert (trace.num_requests, trace.left_out) == (2, 2)


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_what_numbers_are_made_from_is_forgotten_with_the_recording(
    is_stopped: bool,
) -> None:
    trace = LoadTrace()
    trace.start(60 if is_stopped else 0.05)
    trace.submitted(submission("one", [1] * BLOCK_TOKENS))
    trace.ended(ended("one"))
    await trace.hashed()
    assert trace._salt
    assert trace._numbers
    if is_stopped:
        trace.stop()
    await until(lambda: not trace._salt)  # no further request comes
    assert not trace._numbers
    assert len(await lines(trace)) == 1
