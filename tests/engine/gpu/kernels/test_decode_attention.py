"""Decode attention equals float64, however contexts are stored and divided among programs."""

from __future__ import annotations

from functools import partial

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.paged import Piece, Scores, Shape, attention, make_batch
from engine.gpu.kernels.decode_attention import count_tiles
from engine.gpu.kernels.launch import decode_tiles, merge_counters
from tests.engine.gpu.kernels.attending import KINDS, SHAPES, assert_close, decode, on


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("programs", [1, 4])
def test_decode_rows_of_every_shape_equal_float64(
    device: torch.device, shape: Shape, programs: int
) -> None:
    pieces = [Piece(70), Piece(1)]
    batch = make_batch(pieces, shape, device=device)
    assert_close(decode(batch, Scores(), programs=programs), attention(batch, pieces, Scores()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("programs", [1, 2, 8])
def test_decode_with_window_cap_and_sinks(device: torch.device, kind: str, programs: int) -> None:
    scores = on(KINDS[kind], device)
    pieces = [Piece(45), Piece(3), Piece(22)]
    batch = make_batch(pieces, Shape(), device=device)
    assert_close(decode(batch, scores, programs=programs), attention(batch, pieces, scores))


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("programs", [1, 5, 64])
def test_shares_of_very_unequal_contexts_equal_float64(
    device: torch.device, programs: int, window: int | None
) -> None:
    """Programs with less than a row, with some rows, and with nothing to do."""
    pieces = [Piece(3), Piece(400), Piece(16), Piece(17), Piece(1), Piece(90), Piece(5)]
    batch = make_batch(pieces, Shape(6, 2, 16, 8), device=device)
    scores = Scores(window=window)
    expected = attention(batch, pieces, scores)
    for _ in range(2):  # the counters are left as they were found
        assert_close(decode(batch, scores, programs=programs), expected)
    assert not merge_counters(batch.query.device, 0).any()


def test_tiles_are_counted_up_to_each_row(device: torch.device) -> None:
    lengths = torch.tensor([0, 1, 64, 65, 0, 1000], dtype=torch.int32, device=device)
    keys = decode_tiles(64, torch.bfloat16).keys
    assert keys == 64
    counted = partial(count_tiles, lengths, head_dim=64, dtype=torch.bfloat16)
    assert counted(window=None).tolist() == [0, 0, 1, 2, 4, 4, 20]
    # Of the last row, keys 900 to 999 are visible: in tiles 14 and 15.
    assert counted(window=100).tolist() == [0, 0, 1, 2, 4, 4, 6]


def test_a_row_of_padding_is_zero_and_reads_nothing(device: torch.device) -> None:
    pieces = [Piece(20), Piece(9)]
    batch = make_batch(pieces, Shape(), device=device)
    expected = attention(batch, pieces, Scores())
    expected[1] = 0
    batch.lengths[1] = 0
    batch.tables[1] = -7  # an index that any load would stumble over
    for programs in (1, 4, 40):
        assert_close(decode(batch, Scores(), programs=programs), expected)
