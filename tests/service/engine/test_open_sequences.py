"""What the engine reports reaches the sequences that are open, and moves them on."""

from __future__ import annotations

import time
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import (
    Admitted,
    Constraint,
    Embed,
    FinishReason,
    Generate,
    SamplingParams,
    StepPhase,
    Submit,
)
from engine.queueing import Moved, Prefilled, ServiceClass
from observability.admin_api import EventKind, Prefill
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.waits import waits
from service.errors import EngineFailedError
from tests.service.engine.test_link import finished, step


def opened(*handles: int, owner: str = "a") -> tuple[OpenSequences, list[EngineSequence]]:
    sequences = OpenSequences()
    made = [EngineSequence(handle, 3, 0.0, Waker(), owner=owner) for handle in handles]
    for sequence in made:
        sequences.add(sequence)
        sequences.mark_sent(sequence, 0.5)
    return sequences, made


def test_a_sequence_waits_until_it_is_admitted_and_is_counted_for_its_owner() -> None:
    sequences, (first, second) = opened(1, 2)
    assert sequences.num_waiting == 2
    sequences.apply(step({}, admitted=[Admitted(1, 4.0, 2)] * 2), keep_aborted=False)
    assert (first.state, second.state) == (SequenceState.RUNNING, SequenceState.QUEUED)
    assert sequences.num_waiting == 1
    assert sequences.in_state(SequenceState.RUNNING) == [first]


def test_the_first_engine_that_gets_a_sequence_ends_its_admission() -> None:
    sequences, (sequence,) = opened(1)
    sequences.take_back()
    sequences.mark_sent(sequence, 7.0)
    assert sequence.queued_time == 0.5


def test_tokens_and_the_end_reach_the_open_ones_only() -> None:
    sequences, (first, second) = opened(1, 2)
    sequences.remove(second)
    sequences.apply(step({1: 7, 2: 8}, finished=[finished(1, 1)]), keep_aborted=False)
    assert (first.generated, second.generated) == ([7], [])
    assert first.finished is not None
    assert not first.is_open
    assert len(sequences) == sequences.num_waiting == 0


def test_sequences_that_an_engine_aborts_by_itself_are_kept_for_the_next() -> None:
    sequences, [sequence] = opened(1)
    aborted = msgspec.structs.replace(finished(1, 0), reason=FinishReason.ABORT)
    sequences.apply(step({}, finished=[aborted]), keep_aborted=True)
    assert sequence.is_open
    sequences.apply(step({}, finished=[aborted]), keep_aborted=False)
    assert not sequence.is_open


def test_sequences_that_move_to_another_engine_wait_there_in_order_of_arrival() -> None:
    (left, (first, third)), (there, (second,)) = opened(1, 3), opened(2)
    left.take_back()
    there.take_back()
    for sequence in (third, first):
        left.give_away(sequence)
        there.adopt(sequence)
    assert (left.num_waiting, there.num_waiting) == (0, 3)
    assert there.in_state(SequenceState.UNSENT) == [first, second, third]


def test_the_parts_of_a_prompt_are_added_up() -> None:
    sequences, (sequence,) = opened(1)
    for tokens in (64, 64, 7):
        sequences.apply(step({}, prefilled=[Prefilled(1, tokens)]), keep_aborted=False)
    assert sequence.prompt_tokens_computed == 135


def test_failing_one_twice_counts_once() -> None:
    sequences, [sequence] = opened(1)
    sequences.fail([sequence, sequence], EngineFailedError("gone"))
    assert sequence.failure is not None
    assert sequences.num_waiting == 0


def test_a_wait_begins_with_the_submission_and_again_when_the_engine_dies() -> None:
    sequences, (first, second) = opened(1, 2)
    first.waiting_since, second.waiting_since = 10.0, 14.0
    assert waits(sequences, 20.0)[ServiceClass.STANDARD] == (2, 10.0)
    sequences.apply(step({}, admitted=[Admitted(1, 15.0, 0)]), keep_aborted=False)
    assert waits(sequences, 20.0)[ServiceClass.STANDARD] == (1, 6.0)
    sequences.apply(step({}, admitted=[Admitted(2, 16.0, 0)]), keep_aborted=False)
    assert waits(sequences, 20.0)[ServiceClass.STANDARD] == (0, 0.0)
    before = time.monotonic()
    sequences.take_back()
    assert before <= first.waiting_since <= time.monotonic()
    oldest = waits(sequences, first.waiting_since + 2.0)[ServiceClass.STANDARD].oldest
    assert oldest == pytest.approx(2.0)


def test_the_longest_gap_is_that_of_sequences_with_a_token_whatever_they_wait_for() -> None:
    sequences, (first, second, _) = opened(1, 2, 3)
    assert sequences.longest_gap(20.0) == 0.0
    first.last_token_time, second.last_token_time = 12.0, 19.0
    assert sequences.longest_gap(20.0) == 8.0
    sequences.take_back()
    assert sequences.longest_gap(21.0) == 9.0
    sequences.remove(first)
    assert sequences.longest_gap(21.0) == 2.0


def test_the_wait_of_those_who_wait_is_predicted_from_the_recent_pace() -> None:
    sequences, _ = opened(*range(6))
    assert sequences.predicted_wait(0) == 0.0
    assert sequences.predicted_wait(4) is None
    now = time.monotonic()
    at_once = [Admitted(n, now, 0) for n in range(2)]
    sequences.apply(step({}, admitted=at_once), keep_aborted=False)
    assert sequences.predicted_wait(4) is None  # they did not have to wait
    after = [Admitted(n, now + 0.5 * n, 0) for n in (2, 3)]
    sequences.apply(step({}, queued=[2, 3]), keep_aborted=False)
    sequences.apply(step({}, admitted=after), keep_aborted=False)
    pace = sequences.admissions_per_second()
    assert pace is not None
    assert pace < 2.0
    predicted = sequences.predicted_wait(4)
    assert predicted is not None
    assert predicted > 0
    assert sequences.predicted_wait(0) == 0.0


def test_a_place_while_a_grammar_is_prepared_is_no_wait_for_others() -> None:
    sequences, made = opened(1, 2, 3, 4)
    for sequence in made:
        sequence.message = Submit(
            handle=sequence.handle,
            request_id="r",
            prompt_token_ids=[5],
            task=Generate(SamplingParams(max_tokens=5, constraint=Constraint(grammar="g"))),
            arrival_time=0.0,
        )
    sequences.apply(step({}, queued=[1, 2, 3, 4]), keep_aborted=False)
    now = time.monotonic()
    admitted = [Admitted(n, now + 0.1 * n, 0) for n in (1, 2)]
    sequences.apply(step({}, admitted=admitted), keep_aborted=False)
    assert sequences.admissions_per_second() is None
    sequences.apply(step({}, queued=[3, 4]), keep_aborted=False)
    admitted = [Admitted(n, now + 0.5 * n, 0) for n in (3, 4)]
    sequences.apply(step({}, admitted=admitted), keep_aborted=False)
    assert sequences.admissions_per_second() is not None


# --- what happens to a sequence -------------------------------------------------------------------


def run(sequences: OpenSequences, *times: float, handles: tuple[int, ...] = (1,)) -> None:
    """A step with a token for each of these sequences at each time."""
    for now in times:
        tokens = dict.fromkeys(handles, 7)
        sequences.apply(
            msgspec.structs.replace(step(tokens, phase=StepPhase.DECODE), time=now),
            keep_aborted=False,
        )


def events(sequence: EngineSequence, kind: EventKind) -> list[tuple[float, float]]:
    return [(one.time, one.value) for one in sequence.happenings if one.kind is kind]


def test_the_first_second_fourth_and_eighth_token_are_noted_whatever_steps_it_misses() -> None:
    sequences, (first, second) = opened(1, 2)
    run(sequences, 1.0, 2.0, handles=(1, 2))
    run(sequences, 3.0, 4.0, 5.0, handles=(2,))
    run(sequences, *map(float, range(6, 13)), handles=(1, 2))
    assert events(first, EventKind.OUTPUT) == [(1.0, 1), (2.0, 2), (7.0, 4), (11.0, 8)]
    assert events(second, EventKind.OUTPUT) == [(1.0, 1), (2.0, 2), (4.0, 4), (8.0, 8)]


@given(st.lists(st.sampled_from([(1,), (2,), (1, 2), ()]), max_size=80))
def test_powers_of_two_and_the_longest_gap_are_those_of_a_naive_count(
    steps: list[tuple[int, ...]],
) -> None:
    sequences, made = opened(1, 2)
    admitted = [Admitted(1, 0.5, 0), Admitted(2, 0.5, 0)]
    sequences.apply(step({}, admitted=admitted), keep_aborted=False)
    times: dict[int, list[float]] = {1: [], 2: []}
    now = 1.0
    for number, handles in enumerate(steps):
        now += 1.0 + (number * 7) % 5
        run(sequences, now, handles=handles)
        for handle in handles:
            times[handle].append(now)
    for sequence in made:
        had = times[sequence.handle]
        powers = [2**power for power in range(len(had).bit_length()) if 2**power <= len(had)]
        assert events(sequence, EventKind.OUTPUT) == [(had[one - 1], one) for one in powers]
        assert sequence.first_token_time == (had[0] if had else None)
        sequences.remove(sequence)
        own = [b - a for a, b in pairwise(had)]
        if had and had[-1] == now:  # nothing happened after its last token
            assert sequence.longest_gap == max(own, default=0.0)


def test_a_gap_over_five_medians_is_noted_for_all_who_waited() -> None:
    sequences, (first, second, late) = opened(1, 2, 3)
    run(sequences, *map(float, range(1, 40)), handles=(1, 2))
    run(sequences, 45.0, handles=(1, 3))
    assert events(first, EventKind.GAP) == [(45.0, 6.0)]
    assert events(late, EventKind.GAP) == []
    run(sequences, 46.0, handles=(1, 2, 3))
    assert events(second, EventKind.GAP) == [(46.0, 7.0)]
    assert len(events(first, EventKind.GAP)) == 1


def test_preemptions_and_hand_overs_are_noted() -> None:
    sequences, (sequence,) = opened(1)
    moved = {"preempted": [Moved(1, 2.0), Moved(9, 2.0)], "resumed": [Moved(1, 3.0)]}
    sequences.apply(step({}, **moved), keep_aborted=False)
    sequence.deaths = 1
    sequences.mark_sent(sequence, 4.0)
    kinds = [(one.kind, one.time) for one in sequence.happenings]
    assert kinds == [
        (EventKind.PREEMPTED, 2.0),
        (EventKind.RESUMED, 3.0),
        (EventKind.HANDED_OVER, 4.0),
    ]


def test_the_longest_steps_of_its_life_say_whose_prompts_were_in_them() -> None:
    sequences, (sequence, other) = opened(1, 2)
    other.message = Submit(
        handle=2,
        request_id="req_2",
        prompt_token_ids=[1, 2, 3],
        task=Embed(),
        arrival_time=0.0,
    )
    sequences.apply(step({}, admitted=[Admitted(1, 0.5, 0)]), keep_aborted=False)
    for now, seconds, prefilled in ((1.0, 0.1, []), (2.0, 0.9, [Prefilled(2, 300)])):
        sequences.apply(
            msgspec.structs.replace(
                step({1: 7}, phase=StepPhase.MIXED, prefilled=prefilled),
                time=now,
                step_seconds=seconds,
                step_tokens=301,
                step_sequences=2,
            ),
            keep_aborted=False,
        )
    sequences.remove(sequence)
    assert other.prompt_tokens_computed == 300
    assert [(one.time, one.seconds) for one in sequence.longest_steps] == [(2.0, 0.9), (1.0, 0.1)]
    assert sequence.longest_steps[0].prefills == (Prefill("req_2", 300),)
