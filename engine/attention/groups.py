"""KV caches of decoders whose layers differ in shape, such as in the number or size of heads.

Equal layers form a group with a separate ``PagedKVCache`` and separate plans. Block tables are the
same for all groups: block n of a sequence is block n of each group's cache.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from torch import Tensor

from engine.architecture.config import KVLayer
from engine.architecture.features import AttentionWindow
from engine.attention.cache import PagedKVCache
from engine.attention.layout import BatchRows, BatchTensors, GroupedPlans, Plans
from engine.attention.plans import PlanBuilder


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of equal shape. ``layers``: their numbers in the model; ``windows``: theirs."""

    num_kv_heads: int
    head_dim: int
    layers: tuple[int, ...]
    windows: tuple[AttentionWindow, ...]


def groups_of(layers: Items[KVLayer]) -> tuple[LayerGroup, ...]:
    """Group a model's layers, in the order of each group's first one."""
    members: dict[tuple[int, int], list[int]] = {}
    for number, layer in enumerate(layers):
        members.setdefault((layer.num_kv_heads, layer.head_dim), []).append(number)
    return tuple(
        LayerGroup(
            num_kv_heads,
            head_dim,
            tuple(numbers),
            tuple(layers[number].window for number in numbers),
        )
        for (num_kv_heads, head_dim), numbers in members.items()
    )


@dataclass(frozen=True, slots=True)
class CachePlace:
    """Where a layer is: in which group, and its number there."""

    group: int
    index: int


def places_of(layers: Items[KVLayer]) -> tuple[CachePlace, ...]:
    places = {
        layer: CachePlace(number, index)
        for number, group in enumerate(groups_of(layers))
        for index, layer in enumerate(group.layers)
    }
    return tuple(places[layer] for layer in range(len(layers)))


class GroupedKVCache:
    """The caches of all groups, of equally many blocks."""

    def __init__(self, groups: Items[PagedKVCache]) -> None:
        self.groups = tuple(groups)
        self.num_blocks = self.groups[0].num_blocks

    @property
    def num_bytes(self) -> int:
        return sum(group.num_bytes for group in self.groups)

    def clear(self, blocks: Tensor) -> None:
        """Zero ``blocks`` (int64) in all layers."""
        for group in self.groups:
            group.clear(blocks)


class GroupedPlanBuilder:
    """Builds ``GroupedPlans`` on the host and moves them to the device."""

    def __init__(self, builders: Items[PlanBuilder]) -> None:
        """``builders``: one for each group."""
        self._builders = tuple(builders)

    def build(self, rows: BatchRows) -> BatchTensors:
        first, *others = self._builders
        tensors = first.build(rows)
        assert isinstance(tensors.layout, Plans)
        plans = [
            Plans(
                builder.slots(rows.blocks, rows.offsets),
                builder.plans(rows.starts + 1, rows.tables, rows.chunks, rows.row_key),
            )
            for builder in others
        ]
        return tensors._replace(layout=GroupedPlans((tensors.layout, *plans), tuple(rows.items)))
