"""A whole batch is attended by the kernel for lone rows and the one for chunks, each its own."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.paged import Piece, Scores, Shape, attention, make_batch
from engine.attention.layout import Ragged
from engine.gpu.attention import TRITON
from tests.engine.gpu.kernels.attending import assert_close


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(20), Piece(9), Piece(30, 7), Piece(12, 5)],
        [Piece(20), Piece(9)],
        [Piece(30, 7), Piece(12, 5)],
    ],
    ids=["mixed", "lone rows only", "chunks only"],
)
@pytest.mark.parametrize("window", [None, 6])
def test_any_mix_of_lone_rows_and_chunks_equals_float64(
    device: torch.device, pieces: list[Piece], window: int | None
) -> None:
    batch = make_batch(pieces, Shape(), device=device)
    alone = sum(piece.count == 1 for piece in pieces)
    longest = max((piece.count for piece in pieces[alone:]), default=0)
    tables = Ragged(
        slots=torch.empty(0, device=device),  # attention stores nothing
        decode_lengths=batch.lengths[:alone],
        decode_blocks=batch.tables[:alone],
        chunk_lengths=batch.lengths[alone:],
        chunk_blocks=batch.tables[alone:],
        cu_seqlens=batch.cu_seqlens[alone:],
        longest=longest,
    )
    found = TRITON.attend(batch.query, batch.blocks, tables, scale=0.3, window=window, scales=None)
    assert_close(found, attention(batch, pieces, Scores(window=window)))
