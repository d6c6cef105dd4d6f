"""A batch's sampling parameters as arrays, built when the batch's composition changes."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.messages import SamplingParams
from engine.sequence import Sequence

# Below this a division by the temperature would leave float32's range: treated as greedy.
GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class SparseBias:
    """Values to add at (row, token) places of the logits: int64, int64, float32, each [n]."""

    rows: Tensor
    tokens: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class RandomRows:
    """The rows that are drawn at random, and how. Lengths are their number; ``None`` where no row
    uses the filter. ``rows`` None: all rows of the batch, in order."""

    rows: Tensor | None  # int64
    indices: tuple[int, ...]  # the same, on the host, always given
    seeds: NDArray[np.uint64]
    temperature: Tensor  # float32 [rows, 1]
    top_k: Tensor | None  # int64 [rows, 1]; the vocabulary's size where off
    max_top_k: int
    top_p: Tensor | None  # float64 [rows, 1]; 1 where off
    min_p: Tensor | None  # float32 [rows, 1]; 0 where off


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """What the sampler needs to know of a batch besides logits and tokens so far. Row numbers are
    places in the batch."""

    uids: tuple[int, ...]
    bias: SparseBias | None
    penalised: tuple[int, ...]
    allowed: tuple[tuple[int, Tensor], ...]  # row, int64 token ids
    bad_words: tuple[int, ...]
    min_tokens: tuple[tuple[int, Tensor], ...]  # row, int64 ids that must not come yet
    random: RandomRows | None  # None: all rows are greedy
    logprobs: tuple[int, ...]
    constrained: tuple[int, ...]  # rows that a grammar guides

    @property
    def plain_greedy(self) -> bool:
        """Whether the most likely token is all that any row asks for."""
        return not (
            self.random
            or self.bias
            or self.penalised
            or self.allowed
            or self.bad_words
            or self.min_tokens
            or self.logprobs
            or self.constrained
        )


def is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW


def is_plain_greedy(sequence: Sequence) -> bool:
    """Whether the most likely token is all that the sequence asks for."""
    params = sequence.params
    return (
        is_greedy(params)
        and sequence.guide is None
        and params.logprobs is None
        and params.allowed_token_ids is None
        and not (params.logit_bias or params.bad_words_token_ids or params.min_tokens)
        and not is_penalised(params)
    )


def is_penalised(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def build_batch(
    sequences: Items[Sequence],
    *,
    vocab_size: int,
    eos_token_ids: frozenset[int],
    device: torch.device,
) -> SamplingBatch:
    """``sequences`` in batch order. Token ids beyond the vocabulary are ignored: they can neither
    be sampled nor banned."""
    params = [sequence.params for sequence in sequences]
    rows = range(len(params))
    return SamplingBatch(
        uids=tuple(sequence.uid for sequence in sequences),
        bias=_bias(params, vocab_size, device),
        penalised=tuple(row for row in rows if is_penalised(params[row])),
        allowed=tuple(
            (row, _ids(allowed, vocab_size, device))
            for row in rows
            if (allowed := params[row].allowed_token_ids) is not None
        ),
        bad_words=tuple(row for row in rows if params[row].bad_words_token_ids),
        min_tokens=tuple(
            (row, _ids(_stops(params[row], eos_token_ids), vocab_size, device))
            for row in rows
            if params[row].min_tokens
        ),
        random=_random_rows(params, vocab_size, device),
        logprobs=tuple(row for row in rows if params[row].logprobs is not None),
        constrained=tuple(row for row in rows if sequences[row].guide is not None),
    )


def _stops(params: SamplingParams, eos_token_ids: frozenset[int]) -> list[int]:
    eos = frozenset() if params.ignore_eos else eos_token_ids
    return sorted(eos | set(params.stop_token_ids))


def _ids(ids: Items[int], vocab_size: int, device: torch.device) -> Tensor:
    kept = [token for token in ids if token < vocab_size]
    return torch.tensor(kept, dtype=torch.int64, device=device)


def _bias(
    params: Items[SamplingParams], vocab_size: int, device: torch.device
) -> SparseBias | None:
    entries = [
        (row, token, value)
        for row, p in enumerate(params)
        for token, value in p.logit_bias.items()
        if token < vocab_size
    ]
    if not entries:
        return None
    rows, tokens, values = zip(*entries, strict=True)
    return SparseBias(
        rows=torch.tensor(rows, dtype=torch.int64, device=device),
        tokens=torch.tensor(tokens, dtype=torch.int64, device=device),
        values=torch.tensor(values, dtype=torch.float32, device=device),
    )


def _random_rows(
    params: Items[SamplingParams], vocab_size: int, device: torch.device
) -> RandomRows | None:
    indices = [row for row, p in enumerate(params) if not is_greedy(p)]
    if not indices:
        return None
    chosen = [params[row] for row in indices]

    def column(values: list[float] | list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)

    top_ks = [min(p.top_k, vocab_size) or vocab_size for p in chosen]
    limited = [k for k in top_ks if k < vocab_size]
    return RandomRows(
        rows=None
        if len(indices) == len(params)
        else torch.tensor(indices, dtype=torch.int64, device=device),
        indices=tuple(indices),
        seeds=np.array([p.seed for p in chosen], dtype=np.uint64),
        temperature=column([p.temperature for p in chosen], torch.float32),
        top_k=column(top_ks, torch.int64) if limited else None,
        max_top_k=max(limited, default=0),
        top_p=column([p.top_p for p in chosen], torch.float64)
        if any(p.top_p < 1 for p in chosen)
        else None,
        min_p=column([p.min_p for p in chosen], torch.float32)
        if any(p.min_p > 0 for p in chosen)
        else None,
    )
