"""Samples the next token of every row of a batch.

A grammar's mask is applied first: everything else chooses among the tokens it leaves. Then the
order of the steps is the one vLLM documents: banned and allowed tokens, minimum length, logit bias,
penalties; then for random rows temperature, min-p, top-k, top-p, and one draw from the remaining
tokens. Every step works row by row: one sequence's parameters never affect another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from engine.device.device import Readback
from engine.device.sending import sent_one
from engine.errors import RefusedError, TellableError
from engine.messages import TokenLogprobs
from engine.sampling.allowed import forbid_others
from engine.sampling.filters import keep_min_p, keep_top_k, keep_top_p
from engine.sampling.logprobs import LogprobRows, logprob_rows
from engine.sampling.params import (
    RandomRows,
    SamplingBatch,
    SequenceTables,
    build_batch,
    has_tables,
    sequence_tables,
)
from engine.sampling.penalties import TokenCounts, apply_penalties
from engine.sampling.random import uniforms
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence
from engine.step.step import SampledToken

_HIDDEN = float("-inf")
_NO_MASKS: Mapping[int, TokenMask] = MappingProxyType({})


class SamplingError(TellableError):
    """No token can be sampled for a sequence; the message says why."""


class NoTokenLeftError(SamplingError, RefusedError):
    """The request's parameters leave no token to sample."""


Sampled = SampledToken | SamplingError


def _never(row: int) -> bool:
    return False


class Choice:
    """A batch's sampled tokens, being copied to the host.

    ``tokens``: int64 [rows], on the device. ``best`` [rows]: each row's highest logit, which shows
    whether a choice was possible. ``logprobs`` belong to the rows ``reported``. ``restricts``
    returns whether tokens were excluded in a row.
    """

    __slots__ = ("_logprobs", "_readback", "_reported", "_restricts", "tokens")

    def __init__(
        self,
        tokens: Tensor,
        best: Tensor,
        reported: Items[int] = (),
        logprobs: LogprobRows | None = None,
        restricts: Callable[[int], bool] = _never,
    ) -> None:
        self.tokens = tokens
        self._reported = reported
        self._logprobs = logprobs
        self._restricts = restricts
        self._readback = Readback(tokens, best)

    def read(self) -> list[Sampled]:
        """Wait for the device."""
        tokens, best = (column.tolist() for column in self._readback.wait())
        told: dict[int, TokenLogprobs] = {}
        if self._logprobs is not None:
            told = dict(zip(self._reported, self._logprobs.read(), strict=True))
        return [
            SampledToken(token, told.get(row))
            if math.isfinite(best[row])
            else _failure(best[row], restricted=self._restricts(row))
            for row, token in enumerate(tokens)
        ]


class Sampler:
    """Samples tokens. Between steps it keeps the batch's parameters as arrays, the tables of
    sequences with token lists, and the token counts of sequences with penalties; call ``forget``
    when a sequence leaves."""

    def __init__(
        self, *, vocab_size: int, eos_token_ids: frozenset[int], device: torch.device
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._device = device
        self._batch: SamplingBatch | None = None
        self._counts: dict[int, TokenCounts] = {}
        self._tables: dict[int, SequenceTables] = {}

    def forget(self, uid: int) -> None:
        self._counts.pop(uid, None)
        self._tables.pop(uid, None)

    def sample(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask] = _NO_MASKS,
    ) -> list[Sampled]:
        """Return one token for each row of float32 ``logits`` [rows, vocabulary] (which is
        overwritten), continuing ``sequences[row]`` as ``masks[row]`` allows; or the reason why that
        row has none."""
        return self.choose(logits, sequences, masks).read()

    def choose(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask] = _NO_MASKS,
    ) -> Choice:
        """Like ``sample``, without waiting for the device: ``read`` the choice later."""
        batch = self._batch_of(sequences)
        if batch.plain_greedy and not masks:
            best, tokens = most_likely(logits)
            return Choice(tokens, best)
        reported = self._reported(batch)
        raw = None if reported is None else logits.index_select(0, reported)
        self._edit(logits, sequences, masks, batch)
        best, tokens = most_likely(logits)
        if batch.random is not None:
            drawn = self._draw(logits, sequences, batch.random)
            if batch.random.rows is None:
                tokens = drawn
            else:
                tokens = tokens.index_copy(0, batch.random.rows, drawn)
        logprobs = None
        if raw is not None and reported is not None:
            tops = [sequences[row].params.logprobs or 0 for row in batch.logprobs]
            logprobs = logprob_rows(raw, tokens.index_select(0, reported), tops)
        return Choice(
            tokens,
            best,
            batch.logprobs,
            logprobs,
            lambda row: row in masks or batch.restricts(row),
        )

    def tables_of(self, sequence: Sequence) -> SequenceTables | None:
        """Return the token lists in its parameters; None if there are none."""
        if not has_tables(sequence.params):
            return None
        tables = self._tables.get(sequence.uid)
        if tables is None:
            tables = self._tables[sequence.uid] = sequence_tables(
                sequence.params,
                vocab_size=self._vocab_size,
                eos_token_ids=self._eos_token_ids,
                device=self._device,
            )
        return tables

    def _edit(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask],
        batch: SamplingBatch,
    ) -> None:
        if masks:
            forbid_others(logits, list(masks), np.stack(list(masks.values())))
        self._process(logits, sequences, batch)

    def _reported(self, batch: SamplingBatch) -> Tensor | None:
        """Return the rows with logprobs, on the device."""
        if not batch.logprobs:
            return None
        return sent_one(np.array(batch.logprobs, np.int64), self._device)

    def _batch_of(self, sequences: Items[Sequence]) -> SamplingBatch:
        uids = tuple(sequence.uid for sequence in sequences)
        if self._batch is None or self._batch.uids != uids:
            self._batch = build_batch(
                sequences,
                [self.tables_of(sequence) for sequence in sequences],
                vocab_size=self._vocab_size,
                device=self._device,
            )
        return self._batch

    def _process(self, logits: Tensor, sequences: Items[Sequence], batch: SamplingBatch) -> None:
        """Apply everything that may change which token is the most likely, in place."""
        for row, hidden in batch.allowed:
            logits[row].masked_fill_(hidden, _HIDDEN)
        for row, words in batch.bad_words:
            logits[row].index_fill_(0, words.alone, _HIDDEN)
            banned = words.ending(sequences[row].token_ids)
            if banned:
                there = sent_one(np.array(banned, np.int64), self._device)
                logits[row].index_fill_(0, there, _HIDDEN)
        for row, stops in batch.min_tokens:
            if sequences[row].num_output_tokens < sequences[row].params.min_tokens:
                logits[row].index_fill_(0, stops, _HIDDEN)
        if batch.bias is not None:
            logits.view(-1).index_add_(0, batch.bias.places, batch.bias.values)
        if batch.penalised:
            rows = [sequences[row] for row in batch.penalised]
            states = [self._counted(sequence) for sequence in rows]
            apply_penalties(logits, batch.penalised, rows, states)

    def _counted(self, sequence: Sequence) -> TokenCounts:
        counts = self._counts.get(sequence.uid)
        if counts is None:
            prompt = sequence.token_ids[: sequence.num_prompt_tokens]
            counts = self._counts[sequence.uid] = TokenCounts(prompt)
        counts.update(sequence)
        return counts

    def _draw(self, logits: Tensor, sequences: Items[Sequence], random: RandomRows) -> Tensor:
        """Draw tokens, int64 [random rows]."""
        positions = np.array([sequences[row].num_tokens for row in random.indices], np.uint64)
        return draw(
            logits if random.rows is None else logits.index_select(0, random.rows),
            random,
            sent_one(uniforms(random.seeds, positions), self._device),
        )


def most_likely(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's highest logit (NaN if there is one), and the first token that has it."""
    if logits.device.type != "cpu":
        best, tokens = logits.max(dim=-1)
        return best, tokens
    # On a CPU, numpy's argmax takes a tenth of the time of torch's.
    tokens = torch.from_numpy(logits.numpy().argmax(axis=1))
    return logits.gather(1, tokens.unsqueeze(1)).squeeze(1), tokens


def draw(logits: Tensor, random: RandomRows, uniform: Tensor) -> Tensor:
    """Return tokens, int64 [rows], at the quantiles ``uniform`` [rows] (float64 in [0, 1)) of the
    distributions that float32 ``logits`` [rows, vocabulary] have under the rows' settings.

    Quantiles follow the order of token ids, which rounding cannot change, unlike an order by
    probability.
    """
    scaled = logits / random.temperature
    if random.min_p is not None:
        scaled = keep_min_p(scaled, random.min_p)
    if random.top_k is not None:
        scaled = keep_top_k(scaled, random.top_k, random.max_top_k)
    if random.top_p is not None:
        scaled = keep_top_p(scaled, random.top_p)
    cumulative = torch.softmax(scaled, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    target = torch.minimum(uniform.unsqueeze(1) * total, total.nextafter(torch.zeros_like(total)))
    drawn = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    # A row of NaN has no quantile; it fails later, but must not index past the vocabulary first.
    return drawn.clamp_(max=logits.shape[1] - 1)


def _failure(best: float, *, restricted: bool) -> SamplingError:
    if math.isnan(best):
        return SamplingError("the model's logits are not numbers (NaN)")
    if best > 0:
        return SamplingError("a logit is infinite")
    if restricted:
        return NoTokenLeftError("the sampling parameters leave no token to choose from")
    return SamplingError("the model's logits leave no token to choose from")
