"""Keys and values come back from the blocks that they were put into, and from no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.layout import CacheShape
from engine.attention.mirror import MirrorPart

CPU = torch.device("cpu")
HEADS, BLOCK, WIDTH, BLOCKS = 2, 4, 3, 6
SHAPE = CacheShape(BLOCK, HEADS)


def new_cache() -> PagedKVCache:
    return PagedKVCache(
        num_layers=2,
        num_blocks=BLOCKS,
        num_kv_heads=HEADS,
        block_size=BLOCK,
        head_dim=WIDTH,
        dtype=torch.float32,
        device=CPU,
    )


def store(cache: PagedKVCache, blocks: list[int], tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    """A sequence's keys and values [tokens, heads, width], in layer 1."""
    both = torch.randn(2, tokens, HEADS, WIDTH, generator=torch.Generator().manual_seed(seed))
    places = np.arange(tokens)
    slots = SHAPE.slots(np.array(blocks)[places // BLOCK], places % BLOCK)
    stored = cache.store(1, torch.from_numpy(slots.reshape(-1)), both[0], both[1])
    assert torch.equal(stored, torch.cat((both[0], both[1]), dim=1))
    return both[0], both[1]


def gather(cache: PagedKVCache, tables: list[list[int]]) -> tuple[Tensor, Tensor]:
    rows = torch.from_numpy(SHAPE.rows(np.array(tables)).reshape(-1))
    return cache.gather(1, rows, len(tables))


def test_sequences_are_gathered_from_scattered_blocks() -> None:
    cache = new_cache()
    first = store(cache, [4, 1], 7, seed=1)
    second = store(cache, [0, 5], 8, seed=2)
    found = gather(cache, [[4, 1], [0, 5]])
    for half in range(2):
        assert torch.equal(found[half][0, :, :7], first[half].transpose(0, 1))
        assert torch.equal(found[half][1], second[half].transpose(0, 1))
        assert not found[half][0, :, 7:].any()  # a slot that nothing was written to is zero
    assert not cache.layer(0).any()
    assert not cache.layer(1)[[2, 3]].any()


def test_a_gather_holds_until_the_next_one_even_if_that_is_larger() -> None:
    cache = new_cache()
    keys, _ = store(cache, [2], 4, seed=3)
    assert torch.equal(gather(cache, [[2]])[0][0], keys.transpose(0, 1))
    found, _ = gather(cache, [[2, 2, 2], [2, 2, 2]])
    assert torch.equal(found[1, :, 8:], keys.transpose(0, 1))


def test_cleared_blocks_are_zero_in_all_layers_and_the_others_stay() -> None:
    cache = new_cache()
    keys, _ = store(cache, [3, 1], 8, seed=4)
    cache.layer(0).fill_(9.0)
    cache.clear(torch.tensor([3]))
    for layer in range(2):
        assert not cache.layer(layer)[3].any()
    assert torch.equal(gather(cache, [[1]])[0][0], keys[4:].transpose(0, 1))
    assert (cache.layer(0)[1] == 9.0).all()


def test_its_bytes_are_those_of_keys_and_values() -> None:
    cache = new_cache()
    assert cache.num_bytes == 2 * BLOCKS * 2 * HEADS * BLOCK * WIDTH * 4
    assert cache.layer_pointer(1) - cache.layer_pointer(0) == cache.num_bytes // 2
    assert cache.scales(0) is None


def test_a_mirrored_group_needs_a_mirror() -> None:
    part = MirrorPart(0, 1, 1, torch.zeros(4, dtype=torch.int64), fills=True)
    with pytest.raises(ValueError, match="without a mirror"):
        new_cache().mirrored(0, part, None, torch.zeros(1, 4, WIDTH))
