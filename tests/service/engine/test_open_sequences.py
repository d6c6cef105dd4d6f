"""What the engine reports reaches the sequences that are open, and moves them on."""

from __future__ import annotations

import msgspec

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
        sequences.mark_sent(sequence)
    return sequences, made


def test_a_sequence_waits_until_it_is_admitted_and_is_counted_for_its_owner() -> None:
    sequences, (first, second) = opened(1, 2)
    assert sequences.waiting.of("a") == 2
    sequences.apply(step({}, admitted=[Admitted(1, 4.0, 2)] * 2), keep_aborted=False)
    assert (first.state, second.state) == (SequenceState.RUNNING, SequenceState.QUEUED)
    assert sequences.waiting.of("a") == len(sequences.waiting) == 1
    assert sequences.in_state(SequenceState.RUNNING) == [first]


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
