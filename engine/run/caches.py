"""Creates KV caches for a decoder, and what lays its batches out for them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from engine.attention.cache import WORKSPACE_GROWTH, PagedKVCache
from engine.attention.groups import GroupedKVCache, GroupedPlanBuilder, LayerGroup, groups_of
from engine.attention.layout import (
    CacheShape,
    GroupedPlans,
    Layout,
    LayoutBuilder,
    Plans,
    Ragged,
    Rows,
)
from engine.attention.mirror import ContextMirror, MirrorShape
from engine.attention.plans import PlanBuilder
from engine.attention.quantised import E4M3, QuantisedKVCache
from engine.attention.tables import RaggedBuilder, RowsBuilder
from engine.cpu.llama import CompiledLlama
from engine.model.decoder import Decoder
from engine.run.setup import RunnerSetup

# Memory for ``ContextMirror`` as a share of the KV cache's.
MIRROR_SHARE = 1 / 3

AnyKVCache = PagedKVCache | GroupedKVCache


class CacheAndLayouts(NamedTuple):
    cache: AnyKVCache
    layouts: LayoutBuilder


def cache_dtype(setup: RunnerSetup, decoder: Decoder[Any]) -> torch.dtype:
    """Return the model's, or float16 where our compiled code rounds the inputs of products to 8
    bits anyway: it takes half of float32's memory, and half of the time to read it."""
    is_rounded = isinstance(decoder, CompiledLlama) and decoder.rounds_inputs
    return torch.float16 if is_rounded and setup.dtype == torch.float32 else setup.dtype


class Caches:
    """For a decoder whose layouts are of ``layout_type``."""

    def __init__(
        self, setup: RunnerSetup, layout_type: type[Layout], dtype: torch.dtype | None = None
    ) -> None:
        """``dtype``: of keys and values, if they are not quantized; by default the model's."""
        self._setup = setup
        self._block_size = setup.sizes.block_size
        self._layout_type = layout_type
        self._groups = groups_of(setup.model.kv_layers)
        self._dtype = setup.dtype if dtype is None else dtype
        if layout_type not in (GroupedPlans, Rows) and len(self._groups) != 1:
            raise ValueError("layers of different shapes need grouped plans, or rows")

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return sum(map(self._group_bytes, self._groups))

    @property
    def bytes_per_block(self) -> int:
        """Bytes to reserve for each block, copies included."""
        return self.block_bytes + self.copied_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies that torch makes of a block, one layer at a time, when its context is
        decoded on a GPU; 0 where kernels read the cache in place, and on a CPU."""
        if self._setup.device.type == "cpu" or self._layout_type not in (Plans, GroupedPlans):
            return 0
        # Each group of equal layers keeps a workspace.
        sizes = (group.num_kv_heads * group.head_dim for group in self._groups)
        elements = 2 * sum(sizes) * self._block_size
        element = self._setup.dtype.itemsize
        if self._setup.is_cache_quantised:  # copied as they are, then multiplied in float32
            element += E4M3.itemsize + torch.float32.itemsize
        return math.ceil(elements * element * WORKSPACE_GROWTH)

    def create(self, blocks: int, *, mirrored: bool = False) -> CacheAndLayouts:
        """Return a cache of so many blocks. ``mirrored``: with copies of decoding contexts, where
        they pay off."""
        caches: list[PagedKVCache] = []
        builders: list[PlanBuilder] = []
        for group in self._groups:
            mirror = self._new_mirror(group, blocks) if mirrored else None
            caches.append(self._new_cache(group, blocks, mirror))
            builders.append(self._plan_builder(group, mirror))
        if self._layout_type is GroupedPlans:
            return CacheAndLayouts(GroupedKVCache(caches), GroupedPlanBuilder(builders))
        if self._layout_type is Rows:
            # Blocks have the same numbers in all groups.
            cache = caches[0] if len(caches) == 1 else GroupedKVCache(caches)
            return CacheAndLayouts(cache, RowsBuilder())
        [cache] = caches
        if self._layout_type is Ragged:
            return CacheAndLayouts(cache, RaggedBuilder(self._block_size, self._setup.device))
        return CacheAndLayouts(cache, builders[0])

    def _group_bytes(self, group: LayerGroup) -> int:
        setup = self._setup
        elements = 2 * len(group.layers) * group.num_kv_heads * group.head_dim * self._block_size
        dtype = E4M3 if setup.is_cache_quantised else self._dtype
        return elements * dtype.itemsize

    def _plan_builder(self, group: LayerGroup, mirror: ContextMirror | None) -> PlanBuilder:
        shape = CacheShape(self._block_size, group.num_kv_heads)
        return PlanBuilder(shape, group.windows, self._setup.dtype, self._setup.device, mirror)

    def _new_mirror(self, group: LayerGroup, blocks: int) -> ContextMirror | None:
        """Mirroring decoding contexts pays off on a CPU, for layers with full attention."""
        setup = self._setup
        layers = tuple(i for i, window in enumerate(group.windows) if window is None)
        gathers = self._layout_type in (Plans, GroupedPlans)
        if setup.device.type != "cpu" or not layers or not gathers or setup.is_cache_quantised:
            return None
        shape = MirrorShape(layers, group.num_kv_heads, self._block_size, group.head_dim)
        max_bytes = int(blocks * self._group_bytes(group) * MIRROR_SHARE)
        return ContextMirror(shape, max_bytes=max_bytes, dtype=setup.dtype)

    def _new_cache(
        self, group: LayerGroup, blocks: int, mirror: ContextMirror | None
    ) -> PagedKVCache:
        setup = self._setup
        if setup.is_cache_quantised:
            return QuantisedKVCache(
                num_layers=len(group.layers),
                num_blocks=blocks,
                num_kv_heads=group.num_kv_heads,
                block_size=self._block_size,
                head_dim=group.head_dim,
                dtype=setup.dtype,
                device=setup.device,
            )
        return PagedKVCache(
            num_layers=len(group.layers),
            num_blocks=blocks,
            num_kv_heads=group.num_kv_heads,
            block_size=self._block_size,
            head_dim=group.head_dim,
            dtype=self._dtype,
            device=setup.device,
            mirror=mirror,
        )
