"""Decode attention equals float64, however contexts are stored and split."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.paged import Piece, Scores, Shape, attention, make_batch
from tests.engine.gpu.kernels.attending import KINDS, SHAPES, assert_close, decode, on


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("splits", [1, 4])
def test_decode_rows_of_every_shape_equal_float64(
    device: torch.device, shape: Shape, splits: int
) -> None:
    pieces = [Piece(70), Piece(1)]
    batch = make_batch(pieces, shape, device=device)
    assert_close(decode(batch, Scores(), splits=splits), attention(batch, pieces, Scores()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("splits", [1, 2, 8])
def test_decode_with_window_cap_and_sinks(device: torch.device, kind: str, splits: int) -> None:
    scores = on(KINDS[kind], device)
    pieces = [Piece(45), Piece(3), Piece(22)]
    batch = make_batch(pieces, Shape(), device=device)
    assert_close(decode(batch, scores, splits=splits), attention(batch, pieces, scores))


def test_a_row_of_padding_is_zero_and_reads_nothing(device: torch.device) -> None:
    pieces = [Piece(20), Piece(9)]
    batch = make_batch(pieces, Shape(), device=device)
    expected = attention(batch, pieces, Scores())
    expected[1] = 0
    batch.lengths[1] = 0
    batch.tables[1] = -7  # an index that any load would stumble over
    for splits in (1, 4):
        assert_close(decode(batch, Scores(), splits=splits), expected)
