"""What a step's result means for its sequence."""

from __future__ import annotations

from typing import Any

import pytest

from engine.loop.verdict import COMPLETE, FULL, GOES_ON, LATER, POOLED, Verdict, is_full, verdict
from engine.messages import FinishReason, SamplingParams
from engine.step.sequence import Sequence
from engine.step.step import PooledVector, Sampled, SampledToken, ScheduledSequence, Withheld
from tests.engine.checking_runner import EOS, CheckingRunner

INFO = CheckingRunner().info
LIMIT = 10
FAILURE = ValueError("no token")


def item(num_tokens: int = 4, *, completes: bool = True, **params: Any) -> ScheduledSequence:
    """The last token of a sequence of three prompt tokens and some output is computed."""
    wanted = SamplingParams(**{"max_tokens": 100, **params})
    sequence = Sequence(1, "r", [1] * num_tokens, 3, wanted)
    return ScheduledSequence(sequence, num_tokens - 1, 1, completes)


def stopped_by(token_id: int) -> Verdict:
    return Verdict(FinishReason.STOP, stop_token_id=token_id)


@pytest.mark.parametrize(
    ("planned", "sampled", "expected"),
    [
        pytest.param(item(), SampledToken(3), GOES_ON, id="a token"),
        pytest.param(item(completes=False), None, GOES_ON, id="a piece of a prompt"),
        pytest.param(item(), SampledToken(EOS), stopped_by(EOS), id="end of sequence"),
        pytest.param(item(ignore_eos=True), SampledToken(EOS), GOES_ON, id="end ignored"),
        pytest.param(
            item(ignore_eos=True, stop_token_ids=frozenset({3})),
            SampledToken(3),
            stopped_by(3),
            id="stop token",
        ),
        pytest.param(item(min_tokens=3), SampledToken(EOS), GOES_ON, id="below the minimum"),
        pytest.param(item(min_tokens=2), SampledToken(EOS), stopped_by(EOS), id="at the minimum"),
        pytest.param(item(max_tokens=3), SampledToken(3), GOES_ON, id="one below max_tokens"),
        pytest.param(item(max_tokens=2), SampledToken(3), FULL, id="max_tokens reached"),
        pytest.param(item(max_tokens=2), SampledToken(EOS), stopped_by(EOS), id="stop comes first"),
        pytest.param(item(LIMIT - 2), SampledToken(3), GOES_ON, id="one below the limit"),
        pytest.param(item(LIMIT - 1), SampledToken(3), FULL, id="limit reached"),
        pytest.param(item(), PooledVector(b""), POOLED, id="a vector"),
        pytest.param(item(), Withheld.LATER, LATER, id="mask not ready"),
        pytest.param(item(), Withheld.COMPLETE, COMPLETE, id="grammar at its end"),
        pytest.param(
            item(),
            FAILURE,
            Verdict(FinishReason.ERROR, is_computed=False, failure=FAILURE),
            id="failed",
        ),
    ],
)
def test_a_result_means(planned: ScheduledSequence, sampled: Sampled, expected: Verdict) -> None:
    assert verdict(planned, sampled, INFO, LIMIT) == expected


def test_a_missing_token_is_a_failure() -> None:
    ruling = verdict(item(), None, INFO, LIMIT)
    assert (ruling.ends, ruling.is_computed) == (FinishReason.ERROR, False)
    assert "sampled no token" in str(ruling.failure)


def test_it_is_the_same_whether_the_step_after_was_planned_already() -> None:
    """Running ahead, the sequence holds a place for the token before it is known."""
    planned = item(max_tokens=2)
    planned.sequence.token_ids.append(-1)
    assert verdict(planned, SampledToken(3), INFO, LIMIT) == FULL


@pytest.mark.parametrize(
    ("num_tokens", "max_tokens", "full"),
    [(4, 1, True), (4, 2, False), (9, 99, False), (10, 99, True)],
)
def test_a_sequence_is_full_at_its_own_limit_or_the_engine_s(
    num_tokens: int, max_tokens: int, *, full: bool
) -> None:
    assert is_full(item(num_tokens, max_tokens=max_tokens).sequence, LIMIT) is full
