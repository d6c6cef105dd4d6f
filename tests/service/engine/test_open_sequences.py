"""What the engine reports reaches the sequences that are open, and moves them on."""

from __future__ import annotations

import time

import msgspec
import pytest

from engine.messages import Admitted, FinishReason
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState, Waker
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
    assert sequences.waiting.of("a") == 2
    sequences.apply(step({}, admitted=[Admitted(1, 4.0, 2)] * 2), keep_aborted=False)
    assert (first.state, second.state) == (SequenceState.RUNNING, SequenceState.QUEUED)
    assert sequences.waiting.of("a") == len(sequences.waiting) == 1
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
    assert (first.tokens, second.tokens) == ([7], [])
    assert first.finished is not None
    assert not first.is_open
    assert len(sequences) == len(sequences.waiting) == 0


def test_sequences_that_an_engine_aborts_by_itself_are_kept_for_the_next() -> None:
    sequences, [sequence] = opened(1)
    aborted = msgspec.structs.replace(finished(1, 0), reason=FinishReason.ABORT)
    sequences.apply(step({}, finished=[aborted]), keep_aborted=True)
    assert sequence.is_open
    sequences.apply(step({}, finished=[aborted]), keep_aborted=False)
    assert not sequence.is_open


def test_failing_one_twice_counts_once() -> None:
    sequences, [sequence] = opened(1)
    sequences.fail([sequence, sequence], EngineFailedError("gone"))
    assert sequence.failure is not None
    assert len(sequences.waiting) == 0


def test_the_oldest_wait_begins_with_the_submission_and_again_when_the_engine_dies() -> None:
    sequences, (first, second) = opened(1, 2)
    first.waiting_since, second.waiting_since = 10.0, 14.0
    assert sequences.oldest_wait(20.0) == 10.0
    sequences.apply(step({}, admitted=[Admitted(1, 15.0, 0)]), keep_aborted=False)
    assert sequences.oldest_wait(20.0) == 6.0
    sequences.apply(step({}, admitted=[Admitted(2, 16.0, 0)]), keep_aborted=False)
    assert sequences.oldest_wait(20.0) == 0.0
    before = time.monotonic()
    sequences.take_back()
    assert before <= first.waiting_since <= time.monotonic()
    assert sequences.oldest_wait(first.waiting_since + 2.0) == pytest.approx(2.0)


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
    sequences.apply(step({}, admitted=[Admitted(n, 1.0, 0) for n in range(2)]), keep_aborted=False)
    pace = sequences.admissions_per_second()
    assert pace is not None
    predicted = sequences.predicted_wait(4)
    assert predicted is not None
    assert predicted > 0
    assert sequences.predicted_wait(0) == 0.0
