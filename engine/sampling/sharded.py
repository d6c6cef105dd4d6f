"""Sampling when each rank computes the logits of a part of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items

import torch
from torch import Tensor
from torch.nn import functional

from engine.sampling.params import is_plain_greedy
from engine.sampling.sampler import Choice, Sampler
from engine.sharding.collectives import Collectives
from engine.sharding.shard import vocabulary_width
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence


class Vocabulary:
    """Combines the ranks' parts. A part is [rows, tokens of this rank], of any float type; every
    rank has one for the same rows."""

    def __init__(self, vocab_size: int, collectives: Collectives) -> None:
        self._vocab_size = vocab_size
        self._collectives = collectives
        self._is_divided = collectives.shard.size > 1
        self._first, _ = collectives.shard.vocabulary(vocab_size)
        self._width = vocabulary_width(vocab_size, collectives.shard.size)

    @property
    def leads(self) -> bool:
        """True on the rank that samples."""
        return self._collectives.shard.rank == 0

    @property
    def is_divided(self) -> bool:
        return self._is_divided

    def best(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's highest logit, float64 [rows], and the lowest token id that has it,
        int64 [rows], on every rank. A row with a NaN has NaN for its highest."""
        values, places = part.max(dim=-1)
        # Both fit into float64 without rounding, so a single exchange is enough.
        pairs = torch.stack((values.double(), (places + self._first).double()))
        values, ids = self._collectives.all_gather(pairs).unbind(1)
        values, ranks = values.max(dim=0)  # among equal ones the first: the lowest rank
        return values, ids.gather(0, ranks.unsqueeze(0)).squeeze(0).long()

    def whole(self, part: Tensor) -> Tensor:
        """Return [rows, vocabulary] on every rank; ``part`` itself for a single one."""
        if not self._is_divided:
            return part
        return self._joined(self._collectives.all_gather(self._padded(part)))

    def gather(self, part: Tensor) -> Tensor | None:
        """Like ``whole`` on rank 0; None on the others."""
        if not self._is_divided:
            return part
        parts = self._collectives.gather(self._padded(part))
        return None if parts is None else self._joined(parts)

    def tell(self, tokens: Tensor) -> Tensor:
        """Return rank 0's integers [rows] on every rank; the others' may be overwritten."""
        return self._collectives.broadcast(tokens)

    def _padded(self, part: Tensor) -> Tensor:
        missing = self._width - part.shape[1]
        return functional.pad(part, (0, missing), value=float("-inf")) if missing else part

    def _joined(self, parts: Tensor) -> Tensor:
        """[ranks, rows, width] -> [rows, vocabulary]."""
        return parts.transpose(0, 1).flatten(1)[:, : self._vocab_size].contiguous()


class VocabularyParallelSampler:
    """Replaces ``engine.sampling.sampler.Sampler``, given each rank's part of the logits.

    If every row only needs its most likely token, all ranks find it with one small exchange.
    Otherwise rank 0 receives the whole logits and samples as a single process would, with the same
    random numbers. The other ranks then hold rank 0's tokens as their choice if ``tells_tokens``,
    which is required if a step is launched before the last one's tokens are read; otherwise their
    choice is meaningless.
    """

    def __init__(self, sampler: Sampler, vocabulary: Vocabulary, *, tells_tokens: bool) -> None:
        self._sampler = sampler
        self._vocabulary = vocabulary
        self._tells_tokens = tells_tokens

    def forget(self, uid: int) -> None:
        self._sampler.forget(uid)

    def choose(
        self, logits: Tensor, sequences: Items[Sequence], masks: Mapping[int, TokenMask]
    ) -> Choice:
        """``logits``: this rank's part."""
        if all(is_plain_greedy(sequence) for sequence in sequences):
            best, tokens = self._vocabulary.best(logits)
            return Choice(tokens, best)
        whole = self._vocabulary.gather(logits)
        nothing = torch.zeros(len(sequences), dtype=torch.int64, device=logits.device)
        if whole is None:
            tokens = self._vocabulary.tell(nothing) if self._tells_tokens else nothing
            return Choice(tokens, nothing)
        tokens = nothing
        try:
            choice = self._sampler.choose(whole, sequences, masks)
            tokens = choice.tokens
        finally:
            # Even if sampling raised: the other ranks are waiting.
            if self._tells_tokens:
                self._vocabulary.tell(tokens)
        return choice
