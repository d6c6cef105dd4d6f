"""Attention of ragged pieces equals float64; whole batches by both kernels do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples

pytest.importorskip("triton")

from engine.gpu.kernels.ragged_attention import ragged_attention
from tests.engine.gpu.kernels.attending import KINDS, SHAPES, assert_close, decode, on, ragged
from tests.engine.gpu.kernels.paged import Batch, Piece, Scores, Shape, attention, make_batch


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ragged_pieces_of_every_shape_equal_float64(device: torch.device, shape: Shape) -> None:
    pieces = [Piece(43, 9), Piece(50), Piece(7, 7)]
    batch = make_batch(pieces, shape, device=device)
    assert_close(ragged(batch, Scores()), attention(batch, pieces, Scores()))


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_with_window_cap_and_sinks(device: torch.device, kind: str) -> None:
    scores = on(KINDS[kind], device)
    pieces = [Piece(60, 30), Piece(3), Piece(22, 22), Piece(25, 2)]
    batch = make_batch(pieces, Shape(), device=device)
    assert_close(ragged(batch, scores), attention(batch, pieces, scores))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_computed_in_float32_between(
    device: torch.device, dtype: torch.dtype
) -> None:
    pieces = [Piece(40, 5), Piece(33), Piece(50)]
    batch = make_batch(pieces, Shape(), dtype=dtype, device=device)
    expected = attention(batch, pieces, Scores())
    found = ragged(batch, Scores())
    assert found.dtype == dtype
    error = (found.double().cpu() - expected).norm() / expected.norm()
    assert error < 1e-2
    rows = torch.tensor([4, 5, 6])
    last = Batch(
        *(batch.query[rows.to(device)], batch.blocks, batch.tables, batch.lengths),
        *(batch.cu_seqlens, 1, batch.keys, batch.values),
    )
    for splits in (1, 2):
        found = decode(last, Scores(), splits=splits)
        error = (found.double().cpu() - expected[rows]).norm() / expected.norm()
        assert error < 1e-2


def test_rows_that_no_sequence_has_are_left_alone(device: torch.device) -> None:
    pieces = [Piece(9, 4), Piece(12, 3)]
    batch = make_batch(pieces, Shape(), device=device)
    out = torch.full((7, 64), 5.0, device=device)
    ragged_attention(
        batch.query,
        batch.blocks,
        batch.tables[1:],
        batch.lengths[1:],
        batch.cu_seqlens[1:],
        3,
        scale=0.3,
        out=out,
    )
    assert (out[:4] == 5.0).all()
    assert_close(out[4:], attention(batch, pieces, Scores())[4:])


def piece(length: int, count: int) -> Piece:
    return Piece(length, min(length, count))


pieces_of_any_kind = st.lists(
    st.builds(piece, st.integers(1, 90), st.one_of(st.just(1), st.integers(2, 60))),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    pieces=pieces_of_any_kind,
    shape=st.sampled_from(SHAPES),
    block_size=st.sampled_from([8, 16, 32, 64]),
    window=st.one_of(st.none(), st.integers(1, 80)),
    soft_cap=st.sampled_from([None, 1.0, 30.0]),
    has_sinks=st.booleans(),
    splits=st.sampled_from([1, 2, 4]),
    rows=st.sampled_from([16, 32]),
    keys=st.sampled_from([16, 32, 64]),
)
def test_any_batch_equals_float64(
    device: torch.device,
    pieces: list[Piece],
    shape: Shape,
    block_size: int,
    window: int | None,
    soft_cap: float | None,
    has_sinks: bool,
    splits: int,
    rows: int,
    keys: int,
) -> None:
    shape = Shape(shape.heads, shape.kv_heads, shape.head_dim, block_size)
    sinks = torch.linspace(-2, 2, shape.heads, device=device) if has_sinks else None
    scores = Scores(window, soft_cap, sinks)
    batch = make_batch(pieces, shape, device=device)
    expected = attention(batch, pieces, scores)
    assert_close(ragged(batch, scores, rows=rows, keys=keys), expected)
    last = batch.cu_seqlens[1:].long() - 1
    alone = Batch(
        *(batch.query[last], batch.blocks, batch.tables, batch.lengths),
        *(batch.cu_seqlens, 1, batch.keys, batch.values),
    )
    assert_close(decode(alone, scores, splits=splits, keys=keys), expected[last.cpu()])
