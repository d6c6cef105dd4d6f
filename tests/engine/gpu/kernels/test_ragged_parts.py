"""Every tile of every prompt is computed once, in as many parts as keep a device busy."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples

pytest.importorskip("triton")

from engine.gpu.kernels.launch import RaggedTiles, ragged_tiles
from engine.gpu.kernels.ragged_parts import FEWEST_KEYS, FIELDS, plan_parts

# Of an H100 with 32 query and 8 key heads of 128 in bfloat16: a tile has 32 tokens and 32 keys.
PROGRAMS = 264
TOKENS = 32


class Item(NamedTuple):
    sequence: int
    skipped: int
    part: int
    parts: int
    slot: int
    first_row: int
    count: int
    length: int


def planned(
    device: torch.device,
    sizes: list[tuple[int, int]],
    *,
    programs: int = PROGRAMS,
    window: int | None = None,
    longest: int | None = None,
    padding: int = 0,
    tiles: RaggedTiles | None = None,
) -> tuple[list[Item], int]:
    """Return the used items of each key head, and how many slots there are. ``sizes``: new tokens
    and length of each context; ``padding``: rows that belong to none."""
    counts = torch.tensor([0, *(count for count, _ in sizes)], dtype=torch.int32)
    table, slots = plan_parts(
        torch.tensor([length for _, length in sizes], dtype=torch.int32, device=device),
        counts.cumsum(0, dtype=torch.int32).to(device),
        max(longest or 0, *(count for count, _ in sizes), 1),
        rows=int(counts.sum()) + padding,
        heads=32,
        kv_heads=8,
        head_dim=128,
        dtype=torch.bfloat16,
        window=window,
        tiles=tiles,
        programs=programs,
    )
    items = [Item(*row) for row in table.tolist()]
    assert table.shape[1] == len(Item._fields) == FIELDS
    used = [item for item in items if item.parts]
    assert used == items[: len(used)]
    return used, slots


def check(items: list[Item], slots: int, sizes: list[tuple[int, int]]) -> None:
    """Raises AssertionError unless each tile has all its parts, each with its own slot."""
    tiles = defaultdict(list)
    first_rows = [sum(count for count, _ in sizes[:number]) for number in range(len(sizes))]
    for item in items:
        tiles[item.sequence, item.skipped].append(item)
        count, length = sizes[item.sequence]
        assert (item.first_row, item.count, item.length) == (
            *(first_rows[item.sequence], count),
            length,
        )
    expected = {
        (number, skipped)
        for number, (count, _) in enumerate(sizes)
        for skipped in range(0, count, TOKENS)
    }
    assert tiles.keys() == expected
    taken = []
    for parts in tiles.values():
        assert sorted(item.part for item in parts) == list(range(parts[0].parts))
        assert {item.parts for item in parts} == {len(parts)}
        if len(parts) > 1:
            taken += [item.slot for item in parts]
            assert len({item.slot - item.part for item in parts}) == 1
    assert len(set(taken)) == len(taken)
    assert all(0 <= slot < slots for slot in taken)


@pytest.mark.parametrize("count", [1, 31, 64, 65, 200, 300])
def test_a_few_tokens_behind_a_long_context_keep_the_device_busy(
    device: torch.device, count: int
) -> None:
    sizes = [(count, 30_000 + count)]
    items, slots = planned(device, sizes, longest=512, padding=300)
    check(items, slots, sizes)
    assert 0.75 * PROGRAMS <= 8 * len(items) <= 2 * PROGRAMS
    if count == 64:
        assert [item.parts for item in items] == [16] * 32
        # Programs that run at the same time read the same keys.
        assert [(item.part, item.skipped) for item in items[:4]] == [
            *((0, 32), (0, 0)),
            *((1, 32), (1, 0)),
        ]


@pytest.mark.parametrize(
    "sizes",
    [
        [(8192, 8192)],
        [(1024, 1024)] * 8,
        [(512, 512)],
        [(64, 800)],
        [(0, 0)] * 8,
        [(4096, 34_000)],
    ],
    ids=str,
)
def test_where_tiles_suffice_or_contexts_are_short_nothing_is_cut(
    device: torch.device, sizes: list[tuple[int, int]]
) -> None:
    items, slots = planned(device, sizes)
    check(items, slots, sizes)
    assert all(item.parts == 1 for item in items)


def test_a_long_context_among_prompts_is_cut_and_the_others_are_not(device: torch.device) -> None:
    sizes = [(16, 100_000), (2048, 2048), (0, 0), (300, 300)]
    items, slots = planned(device, sizes)
    check(items, slots, sizes)
    parts = {item.sequence: item.parts for item in items}
    assert parts[0] > 8
    assert (parts[1], parts[3]) == (1, 1)


def test_a_window_s_few_keys_are_not_cut(device: torch.device) -> None:
    for window, most in ((512, 1), (8192, 16)):
        items, _ = planned(device, [(32, 100_000)], window=window)
        assert 1 <= items[0].parts <= most
        assert (items[0].parts > 1) == (window > 512)


def test_with_fewer_programs_than_key_heads_nothing_is_cut(device: torch.device) -> None:
    items, slots = planned(device, [(64, 30_000)], programs=3)
    assert slots == 0
    assert all(item.parts == 1 for item in items)


def size(count: int, before: int) -> tuple[int, int]:
    return count, count + before if count else 0


@settings(max_examples=examples(25), deadline=None)
@given(
    sizes=st.lists(
        st.builds(
            size,
            st.one_of(st.integers(0, 40), st.integers(0, 2000)),
            st.one_of(st.just(0), st.integers(0, 500), st.integers(0, 200_000)),
        ),
        min_size=1,
        max_size=12,
    ),
    programs=st.integers(1, 600),
    window=st.one_of(st.none(), st.integers(1, 10_000)),
    longest=st.integers(0, 3000),
    padding=st.integers(0, 100),
)
def test_any_division_has_room_and_no_part_is_short(
    device: torch.device,
    sizes: list[tuple[int, int]],
    programs: int,
    window: int | None,
    longest: int,
    padding: int,
) -> None:
    items, slots = planned(
        device, sizes, programs=programs, window=window, longest=longest, padding=padding
    )
    check(items, slots, sizes)
    for item in items:
        # A tile of keys more or less, where a part ends inside one.
        seen = item.length if window is None else min(item.length, window + TOKENS)
        assert item.parts == 1 or item.parts * FEWEST_KEYS <= seen + 2 * TOKENS


def test_the_tiles_are_those_of_the_table(device: torch.device) -> None:
    sizes = [(64, 30_000)]
    tiles = ragged_tiles(128, torch.bfloat16)
    assert planned(device, sizes) == planned(device, sizes, tiles=tiles)
