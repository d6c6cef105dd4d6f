"""Decides from a step's result whether its sequence continues, and if not, why it ends."""

from __future__ import annotations

from dataclasses import dataclass

from engine.messages import FinishReason
from engine.step.sequence import Sequence
from engine.step.step import (
    ModelInfo,
    PooledVector,
    Sampled,
    SampledToken,
    ScheduledSequence,
    Withheld,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ends``: why the sequence ends; None: it continues. ``is_computed``: the step's tokens are
    in the KV cache now; otherwise the step has to be repeated."""

    ends: FinishReason | None = None
    is_computed: bool = True
    stop_token_id: int | None = None
    failure: Exception | None = None


GOES_ON = Verdict()
LATER = Verdict(is_computed=False)
COMPLETE = Verdict(FinishReason.STOP, is_computed=False)
POOLED = Verdict(FinishReason.STOP)
FULL = Verdict(FinishReason.LENGTH)


def verdict(item: ScheduledSequence, sampled: Sampled, info: ModelInfo, limit: int) -> Verdict:
    """``limit``: the longest sequence that can run, in tokens."""
    if isinstance(sampled, SampledToken):  # first, because nearly every result is one
        return _of_token(item, sampled.token_id, info, limit)
    match sampled:
        case None:
            if item.completes:
                return _failed(RuntimeError("the runner sampled no token"))
            return GOES_ON
        case PooledVector():
            return POOLED
        case Withheld():
            return LATER if sampled is Withheld.LATER else COMPLETE
        case Exception():
            return _failed(sampled)


def _of_token(item: ScheduledSequence, token_id: int, info: ModelInfo, limit: int) -> Verdict:
    sequence = item.sequence
    params = sequence.params
    num_tokens = item.start + item.num_tokens + 1
    num_output_tokens = num_tokens - sequence.num_prompt_tokens
    if num_output_tokens >= params.min_tokens and (
        token_id in params.stop_token_ids
        or (token_id in info.eos_token_ids and not params.ignore_eos)
    ):
        return Verdict(FinishReason.STOP, stop_token_id=token_id)
    if num_output_tokens >= params.max_tokens or num_tokens >= limit:
        return FULL
    return GOES_ON


def is_full(sequence: Sequence, limit: int) -> bool:
    """True if the sequence has all the tokens that it may have."""
    return sequence.num_output_tokens >= sequence.params.max_tokens or sequence.num_tokens >= limit


def _failed(failure: Exception) -> Verdict:
    return Verdict(FinishReason.ERROR, is_computed=False, failure=failure)
