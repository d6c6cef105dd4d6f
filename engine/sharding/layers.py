"""The two kinds of decoder layers in which ranks exchange data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from engine.sharding.collectives import Collectives


class AddingLinear(Protocol):
    """A linear map, as ``engine.model.layers`` has them."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor: ...


class Adding(Protocol):
    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual`` [rows, out] plus the map of ``x`` [rows, in]; may overwrite ``residual``."""
        ...


class RowParallel:
    """A linear map whose inputs are divided among ranks: each maps its own, and all receive the
    sum. The first rank adds the residual stream to its part, so that it is counted once; the other
    ranks' copies of it are not read."""

    __slots__ = ("_collectives", "_leads", "_linear")

    def __init__(self, linear: AddingLinear, collectives: Collectives) -> None:
        self._linear = linear
        self._collectives = collectives
        self._leads = collectives.shard.rank == 0

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        part = self._linear.add_to(residual, x) if self._leads else self._linear(x)
        return self._collectives.all_reduce(part)


def row_parallel(linear: AddingLinear, collectives: Collectives) -> Adding:
    """Return ``linear`` itself for a single rank."""
    return linear if collectives.shard.size == 1 else RowParallel(linear, collectives)


class VocabularyParallelEmbedding:
    """Embeddings of tokens, each held by one rank: the sum over the ranks, where the others' rows
    are zero. ``weight`` [tokens of this rank, hidden]."""

    __slots__ = ("_collectives", "_first", "_weight")

    def __init__(self, weight: Tensor, vocab_size: int, collectives: Collectives) -> None:
        self._weight = weight
        self._first, _ = collectives.shard.vocabulary(vocab_size)
        self._collectives = collectives

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [tokens] -> [tokens, hidden]."""
        places = token_ids - self._first
        foreign = (places < 0) | (places >= self._weight.shape[0])
        x = self._weight.index_select(0, places.masked_fill_(foreign, 0))
        return self._collectives.all_reduce(x.masked_fill_(foreign.unsqueeze(1), 0))


def vocabulary_embedding(
    weight: Tensor, vocab_size: int, collectives: Collectives
) -> Callable[[Tensor], Tensor]:
    """Return a plain lookup for a single rank."""
    if collectives.shard.size > 1:
        return VocabularyParallelEmbedding(weight, vocab_size, collectives)
    return lambda token_ids: weight.index_select(0, token_ids)
