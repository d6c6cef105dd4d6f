"""A model directory's decoder in plain torch, run piece by piece over a separate cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from engine.architecture.config import ModelConfig
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, LayerGroup, groups_of
from engine.attention.layout import CacheShape, GroupedPlans, Layout, Plans, PromptChunk
from engine.attention.plans import PlanBuilder
from engine.model.decoder import Decoder

CPU = torch.device("cpu")
BLOCK_SIZE = 8
NO_LENGTHS = np.empty(0, dtype=np.int64)
NO_TABLES = np.empty((0, 1), dtype=np.int64)


class Weights:
    """A source of what transformers has loaded."""

    def __init__(self, oracle: PreTrainedModel) -> None:
        self._tensors: dict[str, Tensor] = {
            name: tensor.clone() for name, tensor in oracle.state_dict().items()
        }

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def states_in_pieces(
    decoder: Decoder[Any],
    config: ModelConfig,
    tokens: list[int],
    cuts: list[int],
    kept: Callable[[int], Tensor | None] = lambda count: None,
) -> list[Tensor]:
    """The states of each piece of ``tokens`` that ends at one of ``cuts``: of all its tokens, or of
    the rows that ``kept`` names for so many."""
    blocks = np.random.default_rng(0).permutation(-(-len(tokens) // BLOCK_SIZE))
    groups, cache = groups_of(config.kv_layers), empty_cache(config, len(blocks))
    found, start = [], 0
    for end in cuts:
        plans = tuple(_plans(group, blocks, start, end) for group in groups)
        layout: Layout = plans[0] if len(plans) == 1 else GroupedPlans(plans, ())
        places = torch.arange(start, end)
        ids = torch.tensor(tokens[start:end])
        found.append(decoder.hidden_states(ids, places, cache, layout, kept(end - start)))
        start = end
    return found


def empty_cache(config: ModelConfig, num_blocks: int) -> PagedKVCache | GroupedKVCache:
    caches = [_cache(group, num_blocks) for group in groups_of(config.kv_layers)]
    return caches[0] if len(caches) == 1 else GroupedKVCache(caches)


def _cache(group: LayerGroup, num_blocks: int) -> PagedKVCache:
    return PagedKVCache(
        num_layers=len(group.layers),
        num_blocks=num_blocks,
        num_kv_heads=group.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=group.head_dim,
        dtype=torch.float32,
        device=CPU,
    )


def _plans(group: LayerGroup, blocks: NDArray[np.int64], start: int, end: int) -> Plans:
    shape = CacheShape(BLOCK_SIZE, group.num_kv_heads)
    builder = PlanBuilder(shape, group.windows, torch.float32, CPU)
    places = np.arange(start, end)
    slots = builder.slots(blocks[places // BLOCK_SIZE], places % BLOCK_SIZE)
    if end - start == 1:
        return Plans(slots, builder.plans(np.array([end]), blocks[None], ()))
    chunk = PromptChunk(0, start, end - start, blocks)
    return Plans(slots, builder.plans(NO_LENGTHS, NO_TABLES, [chunk]))
