"""Checks whether the sampler could choose any token but the wanted one."""

from __future__ import annotations

from engine.messages import SamplingParams
from engine.sampling.params import is_penalised
from engine.step.sequence import Sequence

# Above it, other tokens begin to have a chance against the wanted one's lead.
_CALM_TEMPERATURE = 2.0


def is_certain(sequence: Sequence) -> bool:
    """True only if a token far above all others is certain to be chosen, and no logprobs are
    needed. Filters keep the most likely token, so they need not be checked."""
    params = sequence.params
    return (
        sequence.grammar_state is None
        and params.logprobs is None
        and params.temperature <= _CALM_TEMPERATURE
        and not _may_forbid(params)
        and not is_penalised(params)
    )


def _may_forbid(params: SamplingParams) -> bool:
    return bool(
        params.logit_bias
        or params.bad_words_token_ids
        or params.min_tokens
        or params.allowed_tokens is not None
    )
