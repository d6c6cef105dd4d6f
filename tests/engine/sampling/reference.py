"""The sampling distribution written a second time: one row, float64, plain numpy, no cleverness."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.messages import SamplingParams

Float64Array = NDArray[np.float64]


def distribution(
    logits: Float64Array,
    params: SamplingParams,
    prompt: list[int],
    output: list[int],
    eos: frozenset[int] = frozenset(),
) -> Float64Array:
    """The probability of each token to come next. Ties at a filter's edge are kept."""
    x = np.array(logits, dtype=np.float64)
    x = _restrict(x, params, prompt, output, eos)
    for token, bias in params.logit_bias.items():
        x[token] += bias
    for token in set(prompt) | set(output):
        if x[token] > 0:
            x[token] /= params.repetition_penalty
        else:
            x[token] *= params.repetition_penalty
    for token in set(output):
        x[token] -= params.frequency_penalty * output.count(token) + params.presence_penalty
    if params.temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    p = _softmax(x / params.temperature)
    p = np.where(p >= params.min_p * p.max(), p, 0.0)
    if params.top_k:
        p = np.where(p >= np.sort(p)[::-1][min(params.top_k, len(p)) - 1], p, 0.0)
    p = p / p.sum()
    if params.top_p < 1:
        falling = np.sort(p)[::-1]
        needed = int(np.argmax(np.cumsum(falling) >= params.top_p))
        p = np.where(p >= falling[needed], p, 0.0)
    return p / p.sum()


def mask_tokens(mask: bytes) -> set[int]:
    return {token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1}


def _restrict(
    x: Float64Array,
    params: SamplingParams,
    prompt: list[int],
    output: list[int],
    eos: frozenset[int],
) -> Float64Array:
    banned: set[int] = set()
    if params.allowed_tokens is not None:
        banned |= set(range(len(x))) - mask_tokens(params.allowed_tokens)
    text = prompt + output
    for word in params.bad_words_token_ids:
        *start, last = word
        if text[len(text) - len(start) :] == start:
            banned.add(last)
    if len(output) < params.min_tokens:
        banned |= set(params.stop_token_ids)
        if not params.ignore_eos:
            banned |= eos
    x[list(banned)] = -np.inf
    return x


def _softmax(x: Float64Array) -> Float64Array:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())
