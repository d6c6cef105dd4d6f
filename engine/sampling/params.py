"""A batch's sampling parameters as arrays, rebuilt when the batch's composition changes, from
tables that are built once for each sequence."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device.sending import sent, sent_one
from engine.messages import SamplingParams
from engine.sampling.bad_words import BadWords
from engine.step.sequence import Sequence

# Below this, dividing by the temperature would exceed float32's range: treated as greedy.
GREEDY_BELOW = 1e-5


@dataclass(frozen=True, slots=True)
class SequenceTables:
    """The token lists in a sequence's parameters, as the sampler uses them; ``None`` for empty
    ones. Token ids outside the vocabulary are dropped: they can neither be sampled nor banned."""

    hidden: Tensor | None  # bool [vocabulary]: not among the allowed tokens
    bad_words: BadWords | None
    stops: Tensor | None  # int64: ids not allowed before ``min_tokens``
    bias: tuple[Tensor, Tensor] | None  # int64 ids, float32 values

    @property
    def restricts(self) -> bool:
        """True if they may exclude tokens."""
        return not (self.hidden is None and self.bad_words is None and self.stops is None)


@dataclass(frozen=True, slots=True)
class SparseBias:
    """Values to add to the logits, counted row after row: int64 and float32, each [n]."""

    places: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class RandomRows:
    """The rows sampled at random, and their parameters. Lengths are their number; ``None`` if no
    row uses the filter. ``rows`` None: all rows of the batch, in order."""

    rows: Tensor | None  # int64
    indices: tuple[int, ...]  # the same, on the host, always set
    seeds: NDArray[np.uint64]
    temperature: Tensor  # float32 [rows, 1]
    top_k: Tensor | None  # int64 [rows, 1]; the vocabulary's size if off
    max_top_k: int
    top_p: Tensor | None  # float64 [rows, 1]; 1 if off
    min_p: Tensor | None  # float32 [rows, 1]; 0 if off


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """A batch's parameters for the sampler, besides logits and tokens so far. Row numbers are
    positions in the batch."""

    uids: tuple[int, ...]
    bias: SparseBias | None
    penalised: tuple[int, ...]
    allowed: tuple[tuple[int, Tensor], ...]  # row, bool [vocabulary]: what is hidden
    bad_words: tuple[tuple[int, BadWords], ...]
    min_tokens: tuple[tuple[int, Tensor], ...]  # row, int64 ids not allowed yet
    random: RandomRows | None  # None: all rows are greedy
    logprobs: tuple[int, ...]

    @property
    def plain_greedy(self) -> bool:
        """True if all rows only need the most likely token."""
        return not (
            self.random
            or self.bias
            or self.penalised
            or self.allowed
            or self.bad_words
            or self.min_tokens
            or self.logprobs
        )

    def restricts(self, row: int) -> bool:
        """True if the row's parameters exclude tokens."""
        ruled = (self.allowed, self.bad_words, self.min_tokens)
        return any(row == other for part in ruled for other, _ in part)


def is_greedy(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW


def is_plain_greedy(sequence: Sequence) -> bool:
    """True if the sequence only needs the most likely token."""
    params = sequence.params
    return (
        is_greedy(params)
        and sequence.grammar_state is None
        and params.logprobs is None
        and params.allowed_tokens is None
        and not (params.logit_bias or params.bad_words_token_ids or params.min_tokens)
        and not is_penalised(params)
    )


def is_penalised(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def has_tables(params: SamplingParams) -> bool:
    """True if ``sequence_tables`` would contain anything."""
    return bool(
        params.allowed_tokens is not None
        or params.bad_words_token_ids
        or params.min_tokens
        or params.logit_bias
    )


def sequence_tables(
    params: SamplingParams,
    *,
    vocab_size: int,
    eos_token_ids: frozenset[int],
    device: torch.device,
) -> SequenceTables:
    mask, words = params.allowed_tokens, params.bad_words_token_ids
    return SequenceTables(
        hidden=None if mask is None else _hidden(mask, vocab_size, device),
        bad_words=BadWords(words, vocab_size, device) if words else None,
        stops=(
            _ids(_stops(params, eos_token_ids), vocab_size, device) if params.min_tokens else None
        ),
        bias=_bias_of(params.logit_bias, vocab_size, device) if params.logit_bias else None,
    )


def build_batch(
    sequences: Items[Sequence],
    tables: Items[SequenceTables | None],
    *,
    vocab_size: int,
    device: torch.device,
) -> SamplingBatch:
    """``sequences``: in batch order, each with its tables if ``has_tables``."""
    params = [sequence.params for sequence in sequences]
    rows = range(len(params))
    listed = [(row, table) for row, table in enumerate(tables) if table is not None]
    return SamplingBatch(
        uids=tuple(sequence.uid for sequence in sequences),
        bias=_bias(listed, vocab_size),
        penalised=tuple(row for row in rows if is_penalised(params[row])),
        allowed=tuple((row, table.hidden) for row, table in listed if table.hidden is not None),
        bad_words=tuple(
            (row, table.bad_words) for row, table in listed if table.bad_words is not None
        ),
        min_tokens=tuple((row, table.stops) for row, table in listed if table.stops is not None),
        random=_random_rows(params, vocab_size, device),
        logprobs=tuple(row for row in rows if params[row].logprobs is not None),
    )


def _stops(params: SamplingParams, eos_token_ids: frozenset[int]) -> list[int]:
    eos = frozenset() if params.ignore_eos else eos_token_ids
    return sorted(eos | params.stop_token_ids)


def _hidden(mask: bytes, vocab_size: int, device: torch.device) -> Tensor:
    bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")[:vocab_size]
    hidden = np.ones(vocab_size, dtype=np.bool_)
    hidden[: len(bits)] = bits == 0
    return sent_one(hidden, device)


def _ids(ids: Items[int], vocab_size: int, device: torch.device) -> Tensor:
    kept = [token for token in ids if token < vocab_size]
    return sent_one(np.array(kept, np.int64), device)


def _bias_of(
    bias: dict[int, float], vocab_size: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    kept = {token: value for token, value in bias.items() if token < vocab_size}
    if not kept:
        return None
    tokens = np.array(list(kept), np.int64)
    tokens_there, values = sent([tokens, np.array(list(kept.values()), np.float32)], device)
    return tokens_there, values


def _bias(listed: Items[tuple[int, SequenceTables]], vocab_size: int) -> SparseBias | None:
    entries = [(row, *table.bias) for row, table in listed if table.bias is not None]
    if not entries:
        return None
    return SparseBias(
        places=torch.cat([tokens + row * vocab_size for row, tokens, _ in entries]),
        values=torch.cat([values for _, _, values in entries]),
    )


def _random_rows(
    params: Items[SamplingParams], vocab_size: int, device: torch.device
) -> RandomRows | None:
    indices = [row for row, p in enumerate(params) if not is_greedy(p)]
    if not indices:
        return None
    chosen = [params[row] for row in indices]
    top_ks = [min(p.top_k, vocab_size) or vocab_size for p in chosen]
    limited = [k for k in top_ks if k < vocab_size]
    columns = (
        np.array([p.temperature for p in chosen], np.float32),
        np.array(top_ks, np.int64),
        np.array([p.top_p for p in chosen], np.float64),
        np.array([p.min_p for p in chosen], np.float32),
    )
    rows, *there = sent([np.array(indices, np.int64), *columns], device)
    temperature, top_k, top_p, min_p = (column.unsqueeze(1) for column in there)
    return RandomRows(
        rows=None if len(indices) == len(params) else rows,
        indices=tuple(indices),
        seeds=np.array([p.seed for p in chosen], dtype=np.uint64),
        temperature=temperature,
        top_k=top_k if limited else None,
        max_top_k=max(limited, default=0),
        top_p=top_p if any(p.top_p < 1 for p in chosen) else None,
        min_p=min_p if any(p.min_p > 0 for p in chosen) else None,
    )
