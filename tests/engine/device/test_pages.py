"""Memory for weights and the KV cache: aligned, apart, zero, in huge pages, and given back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from engine.attention.cache import PagedKVCache
from engine.device.pages import HUGE_PAGE, SLAB, zeros

SMAPS = Path("/proc/self/smaps")
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def requested() -> int:
    """Return the bytes of this process's mappings with a request for huge pages."""
    entries = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", SMAPS.read_text())
    sizes = (re.search(r"Size: +(\d+) kB", entry) for entry in entries if " hg" in entry)
    return sum(int(size[1]) << 10 for size in sizes if size)


def test_tensors_are_zero_begin_at_a_cache_line_and_do_not_overlap() -> None:
    shapes = [(3,), (5, 7), (1,), (2, 3, 4), (1000, 33)]
    found = [zeros(*shape, dtype=torch.bfloat16) for shape in shapes]
    for number, (tensor, shape) in enumerate(zip(found, shapes, strict=True)):
        assert tensor.shape == shape
        assert tensor.dtype == torch.bfloat16
        assert tensor.data_ptr() % 64 == 0
        assert not tensor.any()
        tensor.fill_(number + 1)
    for number, tensor in enumerate(found):
        assert (tensor == number + 1).all()


def test_a_tensor_may_be_larger_than_a_slab_and_may_be_empty() -> None:
    large = zeros(SLAB + 1, dtype=torch.uint8)
    large[-1] = 7
    assert int(large[0]) == 0
    assert large.data_ptr() % HUGE_PAGE == 0
    assert zeros(4, 0).shape == (4, 0)


@pytest.mark.skipif(not SWITCH.exists(), reason="this kernel has no transparent huge pages")
def test_huge_pages_are_requested_and_given_back_with_the_last_tensor_of_a_slab() -> None:
    zeros(SLAB + 1, dtype=torch.uint8)  # what is left of its slab is too small for the next two
    first, second = (zeros(SLAB // 2, dtype=torch.uint8) for _ in range(2))
    zeros(SLAB, dtype=torch.uint8)  # so that the next tensors come from another slab
    before = requested()
    assert before >= SLAB
    del first
    assert requested() >= before
    second.fill_(1)
    del second
    assert requested() <= before - SLAB


@pytest.mark.skipif(not SWITCH.exists(), reason="this kernel has no transparent huge pages")
def test_a_kv_cache_lies_in_huge_pages_and_is_given_back() -> None:
    zeros(SLAB + 1, dtype=torch.uint8)  # so that no slab with room is left
    before = requested()
    cache = PagedKVCache(
        num_layers=2,
        num_blocks=SLAB // (2 * 2 * 2 * 16 * 64 * 4) + 1,
        num_kv_heads=2,
        block_size=16,
        head_dim=64,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    assert cache.num_bytes > SLAB
    assert requested() >= before + cache.num_bytes
    del cache
    assert requested() <= before
