"""Decoding from copies of contexts equals attention over the contexts as rows come and go."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.layout import CacheShape, Plans, WindowPlan
from engine.attention.mirror import ContextMirror, MirrorShape
from engine.attention.plans import PlanBuilder
from engine.attention.reference import paged_attention
from tests.examples import examples

BLOCK, HEADS, WIDTH, LAYERS = 8, 2, 4, 2
CPU = torch.device("cpu")


@dataclass
class Row:
    """A decoding sequence: its blocks, and all keys and values so far by layer."""

    uid: int
    blocks: list[int]
    keys: list[Tensor] = field(default_factory=list)  # each [layers, heads, width]
    values: list[Tensor] = field(default_factory=list)


class Decoding:
    """Runs decode steps of any set of rows and checks each against float64."""

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        torch.manual_seed(0)
        shape = MirrorShape(tuple(range(LAYERS)), HEADS, BLOCK, WIDTH)
        mirror = ContextMirror(shape, max_bytes=max_bytes, dtype=torch.float32)
        self._cache = PagedKVCache(
            num_layers=LAYERS,
            num_blocks=400,
            num_kv_heads=HEADS,
            block_size=BLOCK,
            head_dim=WIDTH,
            dtype=torch.float32,
            device=CPU,
            mirror=mirror,
        )
        self._builder = PlanBuilder(CacheShape(BLOCK, HEADS), [None], torch.float32, CPU, mirror)
        self._free = list(np.random.default_rng(0).permutation(400))
        self.rows: dict[int, Row] = {}

    def add(self, uid: int, length: int) -> None:
        """A row with ``length`` tokens cached already."""
        row = self.rows[uid] = Row(uid, [])
        for _ in range(length):
            self._extend(row)
            for layer in range(LAYERS):
                last = row.keys[-1][layer], row.values[-1][layer]
                self._cache.store(layer, self._slot([row]), last[0][None], last[1][None])

    def move(self, uid: int) -> None:
        """As after a preemption: the same tokens, in other blocks, under another name."""
        row = self.rows.pop(uid)
        self._free = row.blocks + self._free
        for layer in range(LAYERS):
            junk = torch.full((BLOCK, HEADS, WIDTH), 77.0)
            for block in row.blocks:
                slots = self._builder.slots(np.full(BLOCK, block), np.arange(BLOCK))
                self._cache.store(layer, slots, junk, junk)
        self.add(uid + 1000, len(row.keys))

    def step(self, uids: list[int], *, fails_after_layer: int | None = None) -> WindowPlan:
        rows = sorted((self.rows[uid] for uid in uids), key=lambda row: -len(row.keys))
        if fails_after_layer is None:
            for row in rows:
                self._extend(row)
        width = max(len(row.blocks) for row in rows)
        tables = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            tables[i, : len(row.blocks)] = row.blocks
        lengths = np.array([len(row.keys) for row in rows], dtype=np.int64)
        company = tuple(row.uid for row in rows)
        plans = Plans(self._slot(rows), self._builder.plans(lengths, tables, (), company))
        for layer in range(LAYERS if fails_after_layer is None else fails_after_layer):
            query = torch.randn(len(rows), HEADS, WIDTH)
            result = paged_attention(
                query,
                torch.stack([row.keys[-1][layer] for row in rows]),
                torch.stack([row.values[-1][layer] for row in rows]),
                cache=self._cache,
                layer=layer,
                plans=plans,
                window=None,
                scale=0.5,
            )
            for i, row in enumerate(rows):
                keys = torch.stack(row.keys)[:, layer].double()
                values = torch.stack(row.values)[:, layer].double()
                weights = (torch.einsum("hd,nhd->hn", query[i].double(), keys) * 0.5).softmax(-1)
                expected = torch.einsum("hn,nhd->hd", weights, values).flatten()
                torch.testing.assert_close(result[i].double(), expected, atol=1e-5, rtol=1e-5)
        return plans.by_window[None]

    def _extend(self, row: Row) -> None:
        if len(row.keys) == len(row.blocks) * BLOCK:
            row.blocks.append(int(self._free.pop()))
        row.keys.append(torch.randn(LAYERS, HEADS, WIDTH))
        row.values.append(torch.randn(LAYERS, HEADS, WIDTH))

    def _slot(self, rows: list[Row]) -> Tensor:
        last = np.array([len(row.keys) - 1 for row in rows])
        blocks = np.array([row.blocks[-1] for row in rows])
        return self._builder.slots(blocks, last % BLOCK)


def kept(plan: WindowPlan) -> list[bool]:
    """For each group: whether it read a copy made in an earlier step."""
    return [group.mirror is not None and not group.mirror.fills for group in plan.decode]


def test_an_unchanged_set_of_rows_is_gathered_once_and_then_only_extended() -> None:
    decoding = Decoding()
    for uid, length in enumerate((30, 28, 25)):
        decoding.add(uid, length)
    plans = [decoding.step([0, 1, 2]) for _ in range(12)]
    assert [kept(plan) for plan in plans[:2]] == [[False], [False]]
    assert all(kept(plan) == [True] for plan in plans[2:])


def test_contexts_that_outgrow_their_copy_get_a_larger_one() -> None:
    decoding = Decoding()
    decoding.add(0, 5)
    plans = [decoding.step([0]) for _ in range(100)]
    made = [i for i, plan in enumerate(plans) if plan.decode[0].mirror and not kept(plan)[0]]
    assert len(made) > 2
    assert len(made) < 10


def test_contexts_beyond_the_memory_are_gathered() -> None:
    decoding = Decoding(max_bytes=4096)
    decoding.add(0, 100)
    assert all(decoding.step([0]).decode[0].mirror is None for _ in range(4))


def test_a_changed_set_of_rows_is_gathered_again() -> None:
    decoding = Decoding()
    for uid in range(3):
        decoding.add(uid, 20)
    for _ in range(3):
        decoding.step([0, 1])
    assert kept(decoding.step([0, 1, 2])) == [False]
    assert kept(decoding.step([0, 1])) == [False]


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("steps_before", [1, 2, 3])
def test_a_step_that_failed_in_the_middle_can_be_run_again(layers: int, steps_before: int) -> None:
    decoding = Decoding()
    decoding.add(0, 20)
    decoding.add(1, 18)
    for _ in range(steps_before):
        decoding.step([0, 1])
    for row in decoding.rows.values():
        decoding._extend(row)
    decoding.step([0, 1], fails_after_layer=layers)
    decoding.step([0, 1], fails_after_layer=LAYERS)  # the same tokens once more, to the end
    for _ in range(3):
        decoding.step([0, 1])


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 60)),
        st.tuples(st.just("move"), st.integers(0, 9)),
        st.tuples(st.just("step"), st.lists(st.integers(0, 9), min_size=1, unique=True)),
        st.tuples(st.just("steady"), st.integers(1, 9)),
    ),
    max_size=25,
)


@settings(max_examples=examples(80), deadline=None)
@given(actions)
def test_any_coming_and_going_equals_float64_attention(
    script: list[tuple[str, int | list[int]]],
) -> None:
    decoding = Decoding()
    decoding.add(0, 3)
    company = [0]
    for number, (action, value) in enumerate(script):
        live = list(decoding.rows)
        if action == "add" and isinstance(value, int) and len(live) < 6:
            decoding.add(number + 1, value)
        elif action == "move" and isinstance(value, int):
            decoding.move(live[value % len(live)])
        elif action == "step" and isinstance(value, list):
            company = list(dict.fromkeys(live[i % len(live)] for i in value))
            decoding.step(company)
        elif action == "steady" and isinstance(value, int):
            company = [uid for uid in company if uid in decoding.rows] or live[:1]
            for _ in range(value):
                decoding.step(company)
