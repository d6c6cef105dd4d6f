"""Sequences and plans by hand, and what a step's result does to them."""

from __future__ import annotations

from engine.messages import SamplingParams
from engine.step.sequence import Sequence
from engine.step.step import SampledToken, ScheduledSequence, StepPlan, StepResult

GREEDY = SamplingParams(max_tokens=100, temperature=0.0)


def sequence(
    uid: int, token_ids: list[int], blocks: list[int], params: SamplingParams = GREEDY
) -> Sequence:
    return Sequence(
        uid=uid,
        request_id=str(uid),
        token_ids=list(token_ids),
        num_prompt_tokens=len(token_ids),
        params=params,
        block_table=blocks,
    )


def whole(*sequences: Sequence) -> StepPlan:
    """Everything that each sequence has not computed yet."""
    items = []
    for s in sequences:
        start = s.num_computed_tokens
        items.append(ScheduledSequence(s, start, s.num_tokens - start, completes=True))
    return StepPlan(tuple(items))


def take(result: StepResult, *sequences: Sequence) -> None:
    for s, sampled in zip(sequences, result.sampled, strict=True):
        assert isinstance(sampled, SampledToken)
        s.num_computed_tokens = s.num_tokens
        s.token_ids.append(sampled.token_id)
