"""The pool of KV-cache blocks."""

from __future__ import annotations

import pytest

from engine.schedule.blocks import BlockCounts, BlockPool, OutOfBlocksError


def named_and_released(pool: BlockPool, key: bytes) -> int:
    block = pool.allocate()
    pool.name(block, key)
    pool.release(block)
    return block


def test_each_block_is_handed_out_once_until_none_are_left() -> None:
    pool = BlockPool(5)
    assert {pool.allocate() for _ in range(5)} == set(range(5))
    with pytest.raises(OutOfBlocksError):
        pool.allocate()


def test_a_released_block_without_a_name_is_free_again() -> None:
    pool = BlockPool(1)
    pool.release(pool.allocate())
    assert pool.counts() == BlockCounts(free=1, cached=0, active=0)


def test_a_released_block_with_a_name_stays_cached_and_can_be_shared() -> None:
    pool = BlockPool(2)
    block = named_and_released(pool, b"a")
    assert pool.counts() == BlockCounts(free=1, cached=1, active=0)
    assert pool.find(b"a") == block
    pool.share(block)
    pool.share(block)
    assert pool.ref_count(block) == 2
    assert pool.counts() == BlockCounts(free=1, cached=0, active=1)


def test_a_shared_block_is_active_until_its_last_holder_releases_it() -> None:
    pool = BlockPool(1)
    block = named_and_released(pool, b"a")
    pool.share(block)
    pool.share(block)
    pool.release(block)
    assert pool.counts().active == 1
    pool.release(block)
    assert pool.counts().cached == 1


def test_free_blocks_are_used_before_cached_ones() -> None:
    pool = BlockPool(2)
    cached = named_and_released(pool, b"a")
    assert pool.allocate() != cached
    assert pool.find(b"a") == cached


def test_the_block_released_longest_ago_is_evicted_first() -> None:
    pool = BlockPool(3)
    blocks = {}
    held = [pool.allocate() for _ in range(3)]
    for block, key in zip(held, (b"a", b"b", b"c"), strict=True):
        pool.name(block, key)
        blocks[key] = block
    for key in (b"b", b"c", b"a"):
        pool.release(blocks[key])
    pool.share(blocks[b"b"])  # used again: now the most recent
    pool.release(blocks[b"b"])
    assert [pool.allocate() for _ in range(3)] == [blocks[b"c"], blocks[b"a"], blocks[b"b"]]


def test_an_evicted_block_is_not_found_any_more() -> None:
    pool = BlockPool(1)
    block = named_and_released(pool, b"a")
    assert pool.allocate() == block
    assert pool.find(b"a") is None
    pool.release(block)
    assert pool.counts() == BlockCounts(free=1, cached=0, active=0)


def test_the_first_of_two_blocks_with_equal_contents_keeps_the_name() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(), pool.allocate()
    pool.name(first, b"a")
    pool.name(second, b"a")
    assert pool.find(b"a") == first
    pool.release(second)
    assert pool.counts() == BlockCounts(free=1, cached=0, active=1)


def test_misuse_is_refused() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.name(block, b"a")
    with pytest.raises(ValueError, match="already holds"):
        pool.name(block, b"b")
    pool.release(block)
    with pytest.raises(ValueError, match="not held"):
        pool.release(block)
    with pytest.raises(ValueError, match="not held"):
        pool.name(block, b"b")
    with pytest.raises(ValueError, match="nothing to share"):
        pool.share(1)
    with pytest.raises(ValueError, match="pool of 0"):
        BlockPool(0)
