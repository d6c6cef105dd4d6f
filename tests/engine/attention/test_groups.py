"""Layers of different shapes have separate caches over the same blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.architecture.config import KVLayer
from engine.attention.cache import PagedKVCache
from engine.attention.groups import (
    CachePlace,
    GroupedKVCache,
    GroupedPlanBuilder,
    LayerGroup,
    groups_of,
    places_of,
)
from engine.attention.layout import BatchRows, CacheShape, GroupedPlans, Plans, expect
from engine.attention.plans import PlanBuilder

CPU = torch.device("cpu")


def test_equal_layers_form_a_group_whatever_their_windows() -> None:
    layers = [KVLayer(4, 16, 8), KVLayer(2, 32), KVLayer(4, 16), KVLayer(2, 32, 8), KVLayer(4, 32)]
    assert groups_of(layers) == (
        LayerGroup(4, 16, (0, 2), (8, None)),
        LayerGroup(2, 32, (1, 3), (None, 8)),
        LayerGroup(4, 32, (4,), (None,)),
    )
    places = [(place.group, place.index) for place in places_of(layers)]
    assert places == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]
    assert places_of(layers[:1]) == (CachePlace(0, 0),)


def new_cache(num_layers: int, kv_heads: int, head_dim: int) -> PagedKVCache:
    return PagedKVCache(
        num_layers=num_layers,
        num_blocks=3,
        num_kv_heads=kv_heads,
        block_size=8,
        head_dim=head_dim,
        dtype=torch.float32,
        device=CPU,
    )


def test_blocks_are_counted_once_and_cleared_in_all_groups() -> None:
    cache = GroupedKVCache([new_cache(2, 4, 16), new_cache(1, 2, 32)])
    assert cache.num_blocks == 3
    assert cache.num_bytes == 4 * 2 * 3 * 8 * (2 * 4 * 16 + 2 * 32)
    for group in cache.groups:
        for layer in range(2 if group.num_kv_heads == 4 else 1):
            group.layer(layer).fill_(float("inf"))
    cache.clear(torch.tensor([1]))
    for group in cache.groups:
        assert (group.layer(0)[1] == 0).all()
        assert group.layer(0)[[0, 2]].isinf().all()


@pytest.mark.parametrize("count", [1, 2])
def test_each_group_gets_the_plans_of_its_own_shape(count: int) -> None:
    builders = [
        PlanBuilder(CacheShape(8, kv_heads), [None], torch.float32, CPU) for kv_heads in (4, 2)
    ]
    rows = BatchRows(
        token_ids=np.array([5]),
        positions=np.array([9]),
        blocks=np.array([2]),
        offsets=np.array([1]),
        sizes=np.array([1]),
        starts=np.array([9]),
        tables=np.array([[0, 2]]),
        chunks=[],
        row_key=None,
        extras=[np.array([77])],
    )
    built = GroupedPlanBuilder(builders[:count]).build(rows)
    assert built.token_ids.tolist() == [5]
    assert built.extras[0].tolist() == [77]
    assert expect(GroupedPlans, built.layout).items == ()
    groups = expect(GroupedPlans, built.layout).groups
    assert len(groups) == count
    for builder, plans in zip(builders, groups, strict=False):
        alone = expect(Plans, builder.build(rows).layout)
        assert torch.equal(plans.slots, alone.slots)
        assert plans.by_window.keys() == alone.by_window.keys()
