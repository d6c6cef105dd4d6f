"""A whole batch is attended by the kernel for lone rows, the one for chunks, and torch's for those
that begin here, each its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend

pytest.importorskip("triton")

from bench.gpu.paged import Batch, Piece, Scores, Shape, attention, make_batch
from engine.attention.layout import Ragged
from engine.gpu.attention import TRITON, AttentionKernels
from engine.gpu.fresh import FreshAttention
from tests.engine.gpu.kernels.attending import assert_close

# Torch's own formula stands in for cuDNN.
WITH_FRESH = AttentionKernels(
    TRITON.decode, TRITON.ragged, FreshAttention(SDPBackend.MATH, fewest=4)
)

OF_HEADS: dict[str, Any] = {
    **{"heads": 4, "kv_heads": 2, "head_dim": 16},
    "dtype": torch.float32,
}


def ragged(batch: Batch, pieces: list[Piece]) -> Ragged:
    alone = sum(piece.count == 1 for piece in pieces)
    chunks = pieces[alone:]
    return Ragged(
        slots=torch.empty(batch.query.shape[0], device=batch.query.device),  # only counted
        decode_lengths=batch.lengths[:alone],
        decode_blocks=batch.tables[:alone],
        chunk_lengths=batch.lengths[alone:],
        chunk_blocks=batch.tables[alone:],
        cu_seqlens=batch.cu_seqlens[alone:],
        longest=max((piece.count for piece in chunks), default=0),
        sizes=tuple(piece.count for piece in chunks),
        num_fresh=sum(piece.count == piece.length for piece in chunks),
    )


def projections(batch: Batch, pieces: list[Piece]) -> torch.Tensor:
    """[rows, heads + 2 * kv_heads, head_dim]: the queries, and each row's own key and value."""
    own = [
        torch.cat((keys[-piece.count :], values[-piece.count :]), dim=1)
        for piece, keys, values in zip(pieces, batch.keys, batch.values, strict=True)
    ]
    return torch.cat((batch.query, torch.cat(own).to(batch.query)), dim=1)


@pytest.mark.parametrize("kernels", [TRITON, WITH_FRESH], ids=["paged", "fresh by torch"])
@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(20), Piece(9), Piece(30, 7), Piece(12, 5), Piece(3, 3), Piece(9, 9), Piece(21, 21)],
        [Piece(20), Piece(9)],
        [Piece(30, 7), Piece(12, 5)],
        [Piece(5, 5), Piece(6, 6)],
    ],
    ids=["mixed", "lone rows only", "chunks only", "fresh only"],
)
@pytest.mark.parametrize("window", [None, 6])
def test_any_mix_of_lone_rows_and_chunks_equals_float64(
    device: torch.device, pieces: list[Piece], window: int | None, kernels: AttentionKernels
) -> None:
    batch = make_batch(pieces, Shape(), device=device)
    plan = kernels.plan(ragged(batch, pieces), window=window, **OF_HEADS)
    found = kernels.attend(
        projections(batch, pieces),
        batch.blocks,
        plan,
        num_heads=batch.query.shape[1],
        scale=0.3,
        window=window,
        scales=None,
    )
    assert_close(found, attention(batch, pieces, Scores(window=window)))


def test_a_plan_takes_the_chunks_that_begin_here_and_are_long_enough(
    device: torch.device,
) -> None:
    pieces = [Piece(20), Piece(30, 7), Piece(3, 3), Piece(9, 9), Piece(21, 21)]
    tables = ragged(make_batch(pieces, Shape(), device=device), pieces)
    plan = WITH_FRESH.plan(tables, window=None, **OF_HEADS)
    assert plan.fresh == ((11, 20), (20, 41))
    assert (plan.tables.sizes, plan.tables.longest) == ((7, 3), 7)
    assert plan.tables.cu_seqlens.tolist() == [1, 8, 11]
    # The longest would see past the window, and ours does the whole step then.
    assert WITH_FRESH.plan(tables, window=20, **OF_HEADS).fresh == ()
    assert WITH_FRESH.plan(tables, window=21, **OF_HEADS).fresh == plan.fresh
    assert TRITON.plan(tables, window=None, **OF_HEADS).tables is tables
