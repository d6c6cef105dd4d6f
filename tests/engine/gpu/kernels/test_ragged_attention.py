"""Attention of ragged pieces equals float64; whole batches by both kernels do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples

pytest.importorskip("triton")

from bench.gpu.paged import Batch, Piece, Scores, Shape, attention, make_batch
from engine.gpu.kernels import ragged_attention as ragged_module
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.ragged_parts import RaggedParts, plan_parts
from tests.engine.gpu.kernels import attending
from tests.engine.gpu.kernels.attending import KINDS, SHAPES, assert_close, decode, on, ragged


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
    for programs in (1, 2):
        found = decode(last, Scores(), programs=programs)
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


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fill the memory for parts of tiles with NaN, and return how many parts each tile had."""
    new_partial, found = ragged_module._new_partial, []

    def filled(query: torch.Tensor, slots: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        partial, lse = new_partial(query, slots, rows)
        return partial.fill_(float("nan")), lse.fill_(float("nan"))

    def plan(*args: Any, **kwargs: Any) -> RaggedParts:
        parts = plan_parts(*args, **kwargs)
        found.extend(parts.table[:, 3].tolist())
        return parts

    monkeypatch.setattr(ragged_module, "_new_partial", filled)
    monkeypatch.setattr(attending, "plan_parts", plan)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles_in_parts_of_every_shape_equal_float64(
    device: torch.device, shape: Shape, cut: list[int]
) -> None:
    pieces = [Piece(243, 9), Piece(50), Piece(7, 7)]
    batch = make_batch(pieces, shape, device=device)
    found = ragged(batch, Scores(), programs=16 * shape.kv_heads)
    assert_close(found, attention(batch, pieces, Scores()))
    assert max(cut) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_in_parts_with_window_cap_and_sinks(
    device: torch.device, kind: str, cut: list[int]
) -> None:
    scores = on(KINDS[kind], device)
    pieces = [Piece(160, 30), Piece(3), Piece(22, 22), Piece(125, 2)]
    batch = make_batch(pieces, Shape(), device=device)
    for _ in range(2):  # nothing is left for the next layer
        assert_close(ragged(batch, scores, programs=40), attention(batch, pieces, scores))
    assert (max(cut) > 1) == (scores.window is None)  # a window's few keys are not worth it


@pytest.mark.parametrize("window", [None, 1, 100, 333])
@pytest.mark.parametrize("count", [5, 40])
def test_a_few_tokens_behind_a_long_context_are_divided_among_all_programs(
    device: torch.device, count: int, window: int | None, cut: list[int]
) -> None:
    """More parts than are merged at once; windows that begin inside a part."""
    pieces = [Piece(900, count)]
    batch = make_batch(pieces, Shape(), device=device)
    scores = Scores(window=window)
    assert_close(ragged(batch, scores, programs=44), attention(batch, pieces, scores))
    tiles = -(-count // 8)
    assert sum(cut) == max(cut) * max(cut) * tiles
    assert max(cut) * tiles * 2 >= 33 or window is not None


def test_parts_of_a_fresh_prompt_s_first_tiles_may_be_empty(
    device: torch.device, cut: list[int]
) -> None:
    pieces = [Piece(150, 150)]
    batch = make_batch(pieces, Shape(), device=device)
    assert_close(ragged(batch, Scores(), programs=300), attention(batch, pieces, Scores()))
    assert max(cut) > 2


def piece(length: int, count: int) -> Piece:
    return Piece(length, min(length, count))


pieces_of_any_kind = st.lists(
    st.builds(piece, st.integers(1, 90), st.one_of(st.just(1), st.integers(2, 60))),
    min_size=1,
    max_size=4,
)


class Constants(NamedTuple):
    """What a kernel is compiled for."""

    shape: Shape
    block_size: int
    window: int | None
    soft_cap: float | None
    has_sinks: bool
    programs: int
    rows: int
    keys: int


def constants_by(pick: Callable[[Sequence[Any]], Any]) -> Constants:
    return Constants(
        shape=pick(SHAPES),
        block_size=pick([8, 16, 32, 64]),
        window=pick([None, *range(1, 81, 2)]) if pick([0, 1]) else None,
        soft_cap=pick([None, 1.0, 30.0]),
        has_sinks=pick([False, True]),
        programs=pick([1, 2, 4]),
        rows=pick([16, 32]),
        keys=pick([16, 32, 64]),
    )


# A GPU takes seconds to compile for each, so there are only a few for it, and for any batch.
COMPILED = [constants_by(random.Random(seed).choice) for seed in range(12)]
any_constants = (
    st.sampled_from(COMPILED)
    if torch.cuda.is_available()
    else st.composite(lambda draw: constants_by(lambda some: draw(st.sampled_from(some))))()
)


def test_the_few_kernels_compiled_for_a_gpu_have_every_feature() -> None:
    for field in Constants._fields:
        kinds = {getattr(one, field) for one in COMPILED}
        assert len(kinds) > 1, field
        assert field not in ("window", "soft_cap") or None in kinds


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(pieces=pieces_of_any_kind, constants=any_constants)
def test_any_batch_equals_float64(
    device: torch.device, pieces: list[Piece], constants: Constants
) -> None:
    shape, block_size, window, soft_cap, has_sinks, programs, rows, keys = constants
    shape = Shape(shape.heads, shape.kv_heads, shape.head_dim, block_size)
    sinks = torch.linspace(-2, 2, shape.heads, device=device) if has_sinks else None
    scores = Scores(window, soft_cap, sinks)
    batch = make_batch(pieces, shape, device=device)
    expected = attention(batch, pieces, scores)
    assert_close(ragged(batch, scores, rows=rows, keys=keys), expected)
    in_parts = ragged(batch, scores, rows=rows, keys=keys, programs=programs * 8 * shape.kv_heads)
    assert_close(in_parts, expected)
    last = batch.cu_seqlens[1:].long() - 1
    alone = Batch(
        *(batch.query[last], batch.blocks, batch.tables, batch.lengths),
        *(batch.cu_seqlens, 1, batch.keys, batch.values),
    )
    assert_close(decode(alone, scores, programs=programs, keys=keys), expected[last.cpu()])
