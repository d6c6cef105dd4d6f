"""Paged attention equals attention written out in float64, however a batch is put together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.layout import CacheShape, Plans, PromptChunk
from engine.attention.plans import PlanBuilder, split_by_length
from engine.attention.reference import Scoring, paged_attention
from tests.examples import examples

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Piece:
    """Tokens [start, start + count) of one sequence."""

    start: int
    count: int


def expected_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    piece: Piece,
    window: int | None,
    scoring: Scoring | None = None,
) -> Tensor:
    """float64 attention of the piece's queries [count, heads, d] over all keys [n, kv_heads, d]."""
    groups = q.shape[1] // k.shape[1]
    k, v, q = (
        k.double().repeat_interleave(groups, dim=1),
        v.double().repeat_interleave(groups, dim=1),
        q.double(),
    )
    rows = []
    for i in range(piece.count):
        end = piece.start + i + 1
        first = 0 if window is None else max(0, end - window)
        scores = torch.einsum("hd,nhd->hn", q[i], k[first:end]) * 0.3
        weights = expected_weights(scores, scoring)
        rows.append(torch.einsum("hn,nhd->hd", weights, v[first:end]).flatten())
    return torch.stack(rows)


def expected_weights(scores: Tensor, scoring: Scoring | None) -> Tensor:
    """[heads, keys]: a sink takes its share of the softmax, and gives nothing."""
    if scoring is not None and scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    weights = scores.exp()
    total = weights.sum(-1, keepdim=True)
    if scoring is not None and scoring.sinks is not None:
        total = total + scoring.sinks.double().exp()[:, None]
    return weights / total


def attend(
    pieces: list[Piece],
    *,
    kv_heads: int = 2,
    groups: int = 2,
    head_dim: int = 8,
    block_size: int = 8,
    window: int | None = None,
    poison: float = 0.0,
    device: torch.device = CPU,
    scoring: Scoring | None = None,
) -> tuple[Tensor, Tensor]:
    """Our result and the reference for ``pieces`` in one batch: single tokens first, by falling
    context, as the engine orders them. Blocks are scattered; slots after a context hold
    ``poison``."""
    torch.manual_seed(len(pieces))
    decode = sorted((p for p in pieces if p.count == 1), key=lambda p: -p.start)
    pieces = decode + [p for p in pieces if p.count != 1]
    ends = [p.start + p.count for p in pieces]
    sizes = [-(-end // block_size) for end in ends]
    total = sum(sizes)
    shuffled = np.random.default_rng(total).permutation(total + 3)
    tables = np.split(shuffled[:total], np.cumsum(sizes)[:-1])
    cache = PagedKVCache(
        num_layers=2,
        num_blocks=total + 3,
        num_kv_heads=kv_heads,
        block_size=block_size,
        head_dim=head_dim,
        dtype=torch.float32,
        device=device,
    )
    builder = PlanBuilder(CacheShape(block_size, kv_heads), [window], torch.float32, device)

    def slots(table: np.ndarray, first: int, end: int) -> Tensor:
        positions = np.arange(first, end)
        return builder.slots(table[positions // block_size], positions % block_size)

    keys = [torch.randn(end, kv_heads, head_dim, device=device) for end in ends]
    values = [torch.randn(end, kv_heads, head_dim, device=device) for end in ends]
    queries = [torch.randn(p.count, kv_heads * groups, head_dim, device=device) for p in pieces]
    store, chunks, row = [], [], 0
    for piece, table, k, v, size in zip(pieces, tables, keys, values, sizes, strict=True):
        rest = torch.full((size * block_size, kv_heads, head_dim), poison, device=device)
        cache.store(1, slots(table, 0, size * block_size), rest, rest)
        cache.store(1, slots(table, 0, piece.start), k[: piece.start], v[: piece.start])
        store.append(slots(table, piece.start, piece.start + piece.count))
        if piece.count != 1:
            chunks.append(PromptChunk(row, piece.start, piece.count, table))
        row += piece.count
    width = max(sizes)
    padded = np.zeros((len(decode), width), dtype=np.int64)
    for i, table in enumerate(tables[: len(decode)]):
        padded[i, : len(table)] = table
    lengths = np.array([p.start + 1 for p in decode], dtype=np.int64)
    plans = Plans(torch.cat(store), builder.plans(lengths, padded, chunks))
    fresh = [slice(p.start, p.start + p.count) for p in pieces]
    result = paged_attention(
        torch.cat(queries),
        torch.cat([k[s] for k, s in zip(keys, fresh, strict=True)]),
        torch.cat([v[s] for v, s in zip(values, fresh, strict=True)]),
        cache=cache,
        layer=1,
        plans=plans,
        window=window,
        scale=0.3,
        scoring=scoring,
    )
    reference = [
        expected_rows(q, k, v, p, window, scoring)
        for q, k, v, p in zip(queries, keys, values, pieces, strict=True)
    ]
    return result, torch.cat(reference)


def assert_equal(result: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(result.double(), reference, atol=1e-5, rtol=1e-5)


pieces = st.lists(
    st.builds(Piece, st.integers(0, 90), st.one_of(st.just(1), st.integers(2, 70))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    pieces,
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([2, 8, 16]),
    st.sampled_from([8, 16, 32, 64]),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_any_batch_equals_float64_attention(
    pieces: list[Piece],
    kv_heads: int,
    groups: int,
    head_dim: int,
    block_size: int,
    window: int | None,
) -> None:
    result, reference = attend(
        pieces,
        kv_heads=kv_heads,
        groups=groups,
        head_dim=head_dim,
        block_size=block_size,
        window=window,
    )
    assert_equal(result, reference)


@pytest.mark.parametrize("window", [None, 40, 300, 700])
@pytest.mark.parametrize("start", [0, 5, 64, 333])
def test_a_chunk_longer_than_a_tile_equals_float64_attention(
    start: int, window: int | None
) -> None:
    assert_equal(*attend([Piece(start, 600), Piece(17, 1)], window=window))


def test_slots_after_a_context_in_its_last_block_are_not_read() -> None:
    batch = [Piece(10, 1), Piece(3, 1), Piece(1, 7), Piece(20, 5)]
    assert_equal(*attend(batch, poison=1e30))


def test_very_unequal_contexts_do_not_share_one_padded_gather() -> None:
    assert split_by_length([1000] + [10] * 20) == [(0, 1), (1, 21)]
    assert_equal(*attend([Piece(900, 1)] + [Piece(9, 1)] * 12))


@settings(max_examples=examples(60), deadline=None)
@given(
    pieces,
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3]),
    st.one_of(st.none(), st.integers(1, 100)),
    st.sampled_from([None, 0.5]),
    st.booleans(),
)
def test_caps_and_sinks_equal_float64_attention_in_any_batch(
    pieces: list[Piece],
    kv_heads: int,
    groups: int,
    window: int | None,
    softcap: float | None,
    with_sinks: bool,
) -> None:
    sinks = torch.linspace(-1, 2, kv_heads * groups) if with_sinks else None
    assert_equal(
        *attend(
            pieces,
            kv_heads=kv_heads,
            groups=groups,
            window=window,
            scoring=Scoring(softcap, sinks),
        )
    )


@pytest.mark.parametrize("window", [None, 300])
def test_caps_and_sinks_of_a_chunk_whose_scores_are_computed_in_parts(window: int | None) -> None:
    scoring = Scoring(0.5, torch.tensor([0.1, -1.0, 0.4, 2.0]))
    for start in (0, 64):
        assert_equal(*attend([Piece(start, 600), Piece(17, 1)], window=window, scoring=scoring))
