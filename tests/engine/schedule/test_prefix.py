"""The prefix cache: what counts as an equal beginning."""

from __future__ import annotations

import hashlib
import struct
from array import array

import pytest

from engine.block_names import block_hash, root_hash
from engine.messages import SamplingParams
from engine.schedule import prefix
from engine.schedule.prefix import PrefixCache
from engine.step.sequence import Sequence

BLOCK_SIZE = 4


def sequence(token_ids: list[int], salt: str = "", needs_whole_prompt: bool = False) -> Sequence:
    return Sequence(
        0,
        "r",
        list(token_ids),
        len(token_ids),
        SamplingParams(max_tokens=1),
        cache_salt=salt,
        needs_whole_prompt=needs_whole_prompt,
    )


def cache_holding(token_ids: list[int], salt: str = "", num_blocks: int = 8) -> PrefixCache:
    """A cache in which a sequence of these tokens was computed, and then left."""
    cache = PrefixCache(num_blocks, BLOCK_SIZE)
    compute(cache, token_ids, salt)
    return cache


def compute(cache: PrefixCache, token_ids: list[int], salt: str = "") -> list[int]:
    one = sequence(token_ids, salt)
    one.block_table = [cache.pool.allocate() for _ in range(-(-len(token_ids) // BLOCK_SIZE))]
    cache.keep(one, 0, len(token_ids))
    cache.release(one.block_table)
    return one.block_table


def num_hits(cache: PrefixCache, token_ids: list[int], salt: str = "") -> int:
    return len(cache.match(sequence(token_ids, salt)))


def test_the_chain_is_blake2b_over_parent_and_packed_token_ids() -> None:
    root = hashlib.blake2b(b"salt", digest_size=16, person=b"kv-root").digest()
    expected = hashlib.blake2b(root + struct.pack("<4i", 1, 2, 3, 2**31 - 1), digest_size=16)
    assert block_hash(root_hash("salt"), [1, 2, 3, 2**31 - 1]) == expected.digest()


def test_full_blocks_of_an_equal_beginning_are_found() -> None:
    cache = cache_holding([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == 2
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 0, 9, 10]) == 1
    assert num_hits(cache, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == 0


def test_a_block_is_found_only_behind_the_same_prefix() -> None:
    cache = cache_holding([1, 1, 1, 1, 2, 2, 2, 2])
    assert num_hits(cache, [2, 2, 2, 2, 0]) == 0
    assert num_hits(cache, [3, 3, 3, 3, 2, 2, 2, 2, 0]) == 0


def test_the_last_token_is_always_left_to_compute() -> None:
    cache = cache_holding([1, 2, 3, 4, 5, 6, 7, 8])
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 1
    assert num_hits(cache, [1, 2, 3, 4]) == 0


def test_different_salts_share_nothing() -> None:
    cache = cache_holding([1, 2, 3, 4, 5, 6, 7, 8], salt="one")
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9], salt="one") == 2
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9], salt="two") == 0
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0


def test_a_sequence_that_needs_its_whole_prompt_matches_nothing_but_is_kept() -> None:
    cache = cache_holding([1, 2, 3, 4])
    assert cache.match(sequence([1, 2, 3, 4, 5], needs_whole_prompt=True)) == []


def test_only_blocks_that_are_full_are_kept() -> None:
    cache = PrefixCache(8, BLOCK_SIZE)
    one = sequence([1, 2, 3, 4, 5, 6, 7, 8])
    one.block_table = [cache.pool.allocate(), cache.pool.allocate()]
    cache.keep(one, 0, 3)
    assert num_hits(cache, [1, 2, 3, 4, 5]) == 0
    cache.keep(one, 3, 7)
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 1
    cache.keep(one, 7, 8)
    assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 2


def test_the_end_of_a_prefix_is_evicted_before_its_beginning() -> None:
    cache = cache_holding([1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9], num_blocks=3)
    for remaining in (2, 1, 0):
        cache.pool.allocate()
        assert num_hits(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 0]) == remaining


def test_equal_contents_computed_twice_are_kept_once() -> None:
    cache = cache_holding([1, 2, 3, 4])
    compute(cache, [1, 2, 3, 4])
    assert cache.pool.counts().cached == 1


def test_a_disabled_cache_keeps_and_finds_nothing() -> None:
    cache = PrefixCache(8, BLOCK_SIZE, enabled=False)
    compute(cache, [1, 2, 3, 4])
    assert cache.pool.counts().free == 8
    assert num_hits(cache, [1, 2, 3, 4, 5]) == 0


def test_choices_of_one_request_name_their_prompt_s_blocks_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[list[int]] = []
    chained = prefix.chained

    def counted(parent: bytes, packed: bytes) -> bytes:
        made.append(array("i", packed).tolist())
        return chained(parent, packed)

    monkeypatch.setattr(prefix, "chained", counted)
    prompt = list(range(10))
    cache = cache_holding([*prompt, 7, 7, 7, 7, 7, 7])
    made.clear()
    shared: list[bytes] = []
    choices = [sequence(prompt) for _ in range(3)]
    for choice, said in zip(choices, ([7, 7, 7], [8, 8, 8], [7, 7, 7]), strict=True):
        choice.prompt_hashes = shared
        choice.token_ids += said
    assert [len(cache.match(choice)) for choice in choices] == [3, 2, 3]
    assert made == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 7, 7], [8, 9, 8, 8], [8, 9, 7, 7]]
