"""Plans gather what belongs together, mask what may not be seen, and plan no row twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.architecture.features import AttentionChunk, AttentionWindow
from engine.attention.layout import CacheShape, PromptChunk
from engine.attention.plans import TILE, PlanBuilder, first_seen, split_by_length

CPU = torch.device("cpu")
BLOCK = 4
NO_LENGTHS = np.empty(0, dtype=np.int64)
NO_TABLES = np.empty((0, 1), dtype=np.int64)


def builder(*windows: AttentionWindow) -> PlanBuilder:
    return PlanBuilder(CacheShape(BLOCK, 1), windows, torch.float32, CPU)


def visible(mask: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero().flatten().tolist() for row in mask]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_ranges_cover_all_rows_and_bound_padding(lengths: list[int]) -> None:
    lengths.sort(reverse=True)
    ranges = split_by_length(lengths)
    assert [i for first, last in ranges for i in range(first, last)] == list(range(len(lengths)))
    for first, last in ranges:
        padded = lengths[first] * (last - first)
        assert padded - sum(lengths[first:last]) <= 0.4 * padded


def test_layers_with_one_window_share_one_plan() -> None:
    plans = builder(None, 3, None, 3).plans(np.array([5]), np.array([[0, 1]]), ())
    assert list(plans) == [None, 3]


def seen(window: AttentionWindow, position: int) -> list[int]:
    """What a token at ``position`` attends to, said another way."""
    if isinstance(window, AttentionChunk):
        return [key for key in range(position + 1) if key // window.size == position // window.size]
    return [key for key in range(position + 1) if window is None or key > position - window]


WINDOWS = [None, 2, 6, AttentionChunk(3), AttentionChunk(4), AttentionChunk(6)]


@pytest.mark.parametrize("window", [*WINDOWS, 1, AttentionChunk(1), AttentionChunk(99)])
def test_the_first_position_that_is_seen(window: AttentionWindow) -> None:
    positions = np.arange(40)
    found = first_seen(window, positions).tolist()
    assert found == [seen(window, position)[0] for position in range(40)]
    assert int(first_seen(window, np.array(7))) == seen(window, 7)[0]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_decode_row_gathers_the_blocks_of_its_window_and_sees_no_other_key(
    window: AttentionWindow,
) -> None:
    lengths, tables = np.array([11, 9]), np.array([[7, 3, 5], [2, 8, 6]])
    [group] = builder(window).plans(lengths, tables, ())[window].decode
    assert (group.first, group.last) == (0, 2)
    assert group.rows is not None
    assert group.mask is not None
    # With one key head, block b's keys are row 2 * b.
    gathered = (group.rows.view(2, 2, -1)[0] // 2).tolist()
    for length, table, blocks, keys in zip(
        lengths, tables.tolist(), gathered, visible(group.mask[:, 0, 0]), strict=True
    ):
        # Which token of the sequence lies where in what was gathered.
        tokens = [table.index(block) * BLOCK + i for block in blocks for i in range(BLOCK)]
        assert [tokens[key] for key in keys] == seen(window, length - 1)


def test_rows_of_one_length_need_no_mask() -> None:
    [group] = builder(None).plans(np.array([6, 6]), np.array([[0, 1], [2, 3]]), ())[None].decode
    assert group.mask is None
    assert group.length == 6


@pytest.mark.parametrize("window", [None, 600, AttentionChunk(600), AttentionChunk(601)])
def test_a_prompt_s_first_chunk_is_plain_causal_and_reads_no_cache(window: AttentionWindow) -> None:
    chunk = PromptChunk(3, 0, 600, np.arange(150))
    [tile] = builder(window).plans(NO_LENGTHS, NO_TABLES, [chunk])[window].prefill
    assert (tile.first, tile.last, tile.rows, tile.mask) == (3, 603, None, None)


@pytest.mark.parametrize("window", [7, AttentionChunk(7), AttentionChunk(300)])
def test_a_prompt_s_first_chunk_is_masked_if_it_is_longer_than_the_window(
    window: AttentionWindow,
) -> None:
    chunk = PromptChunk(3, 0, 600, np.arange(150))
    tiles = builder(window).plans(NO_LENGTHS, NO_TABLES, [chunk])[window].prefill
    assert [tile.first for tile in tiles] == [3, 3 + TILE, 3 + 2 * TILE]
    for tile in tiles:
        assert tile.rows is None
        assert tile.mask is not None
        for position, keys in enumerate(visible(tile.mask), start=tile.first - 3):
            assert [tile.first_key - 3 + key for key in keys] == seen(window, position)


@pytest.mark.parametrize("window", [None, 5, *map(AttentionChunk, (1, 5, 8, 100, 272))])
def test_tiles_of_a_later_chunk_cover_it_and_each_token_sees_up_to_itself(
    window: AttentionWindow,
) -> None:
    start, count = 10, TILE + 20
    blocks = np.random.default_rng(0).permutation(100)
    chunk = PromptChunk(2, start, count, blocks)
    tiles = builder(window).plans(NO_LENGTHS, NO_TABLES, [chunk])[window].prefill
    assert [(tile.first, tile.last) for tile in tiles] == [(2, 2 + TILE), (2 + TILE, 2 + count)]
    table = blocks.tolist()
    for tile in tiles:
        assert tile.rows is not None
        assert tile.mask is not None
        gathered = (tile.rows.view(2, -1)[0] // 2).tolist()
        tokens = [table.index(block) * BLOCK + i for block in gathered for i in range(BLOCK)]
        tokens = tokens[tile.first_key : tile.first_key + tile.num_keys]
        for row, keys in enumerate(visible(tile.mask), start=tile.first - 2 + start):
            assert [tokens[key] for key in keys] == seen(window, row)
