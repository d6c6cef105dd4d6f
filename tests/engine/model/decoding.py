"""A model directory's decoder in plain torch, run piece by piece over a separate cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.architecture.config import ModelConfig
from engine.attention.cache import PagedKVCache
from engine.attention.layout import CacheShape, Plans, PromptChunk
from engine.attention.plans import PlanBuilder
from engine.model.decoder import Decoder

CPU = torch.device("cpu")
BLOCK_SIZE = 8
NO_LENGTHS = np.empty(0, dtype=np.int64)
NO_TABLES = np.empty((0, 1), dtype=np.int64)


class Weights:
    """A source of what transformers has loaded."""

    def __init__(self, oracle: PreTrainedModel) -> None:
        self._tensors = {name: tensor.clone() for name, tensor in oracle.state_dict().items()}

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def states_in_pieces(
    decoder: Decoder,
    config: ModelConfig,
    tokens: list[int],
    cuts: list[int],
    kept: Callable[[int], Tensor | None] = lambda count: None,
) -> list[Tensor]:
    """The states of each piece of ``tokens`` that ends at one of ``cuts``: of all its tokens, or of
    the rows that ``kept`` names for so many."""
    blocks = np.random.default_rng(0).permutation(-(-len(tokens) // BLOCK_SIZE))
    cache = PagedKVCache(
        num_layers=config.num_layers,
        num_blocks=len(blocks),
        num_kv_heads=config.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=CPU,
    )
    shape = CacheShape(BLOCK_SIZE, config.num_kv_heads)
    builder = PlanBuilder(shape, config.sliding_windows, torch.float32, CPU)
    found, start = [], 0
    for end in cuts:
        places = np.arange(start, end)
        slots = builder.slots(blocks[places // BLOCK_SIZE], places % BLOCK_SIZE)
        if end - start == 1:
            plans = builder.plans(np.array([end]), blocks[None], ())
        else:
            chunk = PromptChunk(0, start, end - start, blocks)
            plans = builder.plans(NO_LENGTHS, NO_TABLES, [chunk])
        found.append(
            decoder.hidden_states(
                torch.tensor(tokens[start:end]),
                torch.from_numpy(places),
                cache,
                Plans(slots, plans),
                kept(end - start),
            )
        )
        start = end
    return found
