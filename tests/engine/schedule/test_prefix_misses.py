"""Each miss has its reason, compared with a model that remembers every prefix in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.block_names import block_hash, root_hash
from engine.messages import EngineCounters, PrefixMiss, PrefixMissReason, SamplingParams
from engine.schedule import prefix_misses
from engine.schedule.prefix import PrefixCache
from engine.schedule.prefix_misses import PrefixMisses
from engine.schedule.scheduler import Scheduler
from engine.step.sequence import Sequence
from tests.examples import examples

BLOCK_SIZE = 2
Prefix = tuple[str, tuple[int, ...]]  # salt, and token ids of whole blocks


def hash_of(prefix: Prefix) -> bytes:
    salt, tokens = prefix
    name = root_hash(salt)
    for start in range(0, len(tokens), BLOCK_SIZE):
        name = block_hash(name, list(tokens[start : start + BLOCK_SIZE]))
    return name


class Model:
    """Knows every prefix that was ever computed, in full, and when it was lost."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self.computed: dict[Prefix, str] = {}
        self.lost_at: dict[Prefix, float] = {}

    def is_here(self, prefix: Prefix) -> bool:
        return self.cache.pool.find(hash_of(prefix)) is not None

    def here(self) -> Iterator[Prefix]:
        return (prefix for prefix in self.computed if self.is_here(prefix))

    def update(self, now: float, before: set[Prefix]) -> None:
        for prefix in before:
            if not self.is_here(prefix):
                self.lost_at[prefix] = now

    def explain(self, sequence: Sequence, num_found: int, now: float) -> tuple[Any, ...]:
        if sequence.needs_whole_prompt:
            return (PrefixMissReason.WHOLE_PROMPT,)
        salt, tokens = sequence.cache_salt, tuple(sequence.token_ids)
        end = (num_found + 1) * BLOCK_SIZE
        if end >= len(tokens):
            return (PrefixMissReason.SHORT,)
        wanted = (salt, tokens[:end])
        assert not self.is_here(wanted)
        if wanted in self.computed:
            return PrefixMissReason.EVICTED, now - self.lost_at[wanted]
        beside = {
            self.computed[here]
            for here in self.here()
            if here[0] == salt
            and len(here[1]) == end
            and here[1][:-BLOCK_SIZE] == tokens[: end - 2]
        }
        if num_found and beside:
            return PrefixMissReason.DIVERGED, beside
        if not num_found and any(here[1] == wanted[1] for here in self.here()):
            return (PrefixMissReason.SALT,)
        return (PrefixMissReason.FIRST_SEEN,)


def check(found: PrefixMiss, expected: tuple[Any, ...]) -> None:
    assert found.reason is expected[0]
    if found.reason is PrefixMissReason.EVICTED:
        assert found.seconds_ago == pytest.approx(expected[1])
    elif found.reason is PrefixMissReason.DIVERGED:
        assert found.request_id in expected[1]
    else:
        assert found.request_id == ""
        assert found.seconds_ago is None


prompts = st.builds(
    lambda tokens, salt, whole, stays: (tokens, salt, whole, stays),
    st.lists(st.integers(0, 1), min_size=1, max_size=9),
    st.sampled_from(["", "", "a", "b"]),
    st.sampled_from([False] * 7 + [True]),
    st.integers(1, 4),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(prompts, min_size=1, max_size=24), st.integers(6, 14))
def test_every_reason_is_the_one_that_a_model_with_full_memory_gives(
    requests: list[tuple[list[int], str, bool, int]], num_blocks: int
) -> None:
    one = Scheduler(
        num_kv_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=100,
        max_num_seqs=4,
        max_num_batched_tokens=64,
    )
    model, now = Model(one.prefix), 0.0
    explain, allocate = one.prefix.explain, one.pool.allocate

    def compared(sequence: Sequence, num_found: int) -> PrefixMiss:
        miss = explain(sequence, num_found)
        check(miss, model.explain(sequence, num_found, now))
        return miss

    def watched() -> int:
        before = set(model.here())
        block = allocate()
        model.update(now, before)
        return block

    one.prefix.explain = compared  # type: ignore[method-assign]
    one.pool.allocate = watched  # type: ignore[method-assign]
    running: dict[int, tuple[Sequence, int]] = {}
    for uid, (tokens, salt, whole, stays) in enumerate(requests):
        sequence = Sequence(
            uid,
            f"req_{uid}",
            list(tokens),
            len(tokens),
            SamplingParams(max_tokens=9),
            cache_salt=salt,
            needs_whole_prompt=whole,
        )
        one.add(sequence)
        running[uid] = (sequence, stays)
        now += 1.0
        for item in one.schedule(now).scheduled:
            before = set(model.here())
            one.update(item, 7 if item.completes else None, now)
            done = item.sequence
            for end in range(BLOCK_SIZE, item.end + 1, BLOCK_SIZE):
                prefix = (done.cache_salt, tuple(done.token_ids[:end]))
                if prefix not in before and model.is_here(prefix):
                    model.computed[prefix] = done.request_id
        for other, (kept, left) in list(running.items()):
            if left == 0 or kept.num_output_tokens > 3:
                one.finish(kept)
                del running[other]
            else:
                running[other] = (kept, left - 1)


def scheduler(**fields: Any) -> Scheduler:
    shape: dict[str, Any] = {
        "num_kv_blocks": 16,
        "block_size": BLOCK_SIZE,
        "max_model_len": 100,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
    }
    return Scheduler(**(shape | fields))


def run(one: Scheduler, tokens: list[int], now: float = 0.0, **fields: Any) -> PrefixMiss:
    """Return why a sequence missed, after it was computed and has left."""
    name = f"req_{now:.0f}"
    sequence = Sequence(
        one.counters.steps, name, list(tokens), len(tokens), SamplingParams(max_tokens=1), **fields
    )
    one.add(sequence)
    for item in one.schedule(now).scheduled:
        one.update(item, 7, now)
    one.finish(sequence)
    assert sequence.prefix_miss is not None
    return sequence.prefix_miss


def missed(counters: EngineCounters) -> dict[str, int]:
    return {
        reason.value: tokens
        for reason in PrefixMissReason
        if (tokens := getattr(counters, f"prefix_missed_{reason.value}"))
    }


def test_each_reason_counts_the_prompt_tokens_that_were_not_cached() -> None:
    one = scheduler(num_kv_blocks=6)
    assert run(one, [1, 2, 3, 4, 5], 1.0) == PrefixMiss(PrefixMissReason.FIRST_SEEN)
    assert run(one, [1, 2, 3, 4, 5], 2.0) == PrefixMiss(PrefixMissReason.SHORT)
    assert run(one, [1, 2, 9, 9, 9], 3.0) == PrefixMiss(
        PrefixMissReason.DIVERGED, "req_1", within=BLOCK_SIZE
    )
    assert run(one, [1, 2, 3], 4.0, cache_salt="s") == PrefixMiss(PrefixMissReason.SALT)
    whole = run(one, [1, 2, 3, 4, 5], 5.0, needs_whole_prompt=True)
    assert whole == PrefixMiss(PrefixMissReason.WHOLE_PROMPT)
    run(one, [5] * 12, 6.0)  # takes all blocks
    again = run(one, [1, 2, 3, 4, 5], 8.0)
    assert again == PrefixMiss(PrefixMissReason.EVICTED, seconds_ago=2.0)
    assert missed(one.counters) == {
        "first_seen": 5 + 12,
        "short": 1,
        "diverged": 3,
        "salt": 3,
        "whole_prompt": 5,
        "evicted": 5,
    }
    off = scheduler(enable_prefix_caching=False)
    assert run(off, [1, 2, 3]) == PrefixMiss(PrefixMissReason.OFF)
    assert missed(off.counters) == {"off": 3}


def test_a_salt_is_found_from_either_side() -> None:
    one = scheduler()
    run(one, [1, 2, 3], cache_salt="a")
    for salt in ("", "b"):
        assert run(one, [1, 2, 3], cache_salt=salt).reason is PrefixMissReason.SALT


def test_only_the_latest_evictions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_misses, "REMEMBERED_EVICTIONS", 4)
    one = scheduler(num_kv_blocks=4)
    run(one, [1, 1, 1, 1, 1])
    for token in range(2, 6):
        run(one, [token] * 8)
    for token in range(6, 9):
        run(one, [token] * 8)
    assert run(one, [1, 1, 1, 1, 1]).reason is PrefixMissReason.FIRST_SEEN
    assert run(one, [8, 8, 8, 8, 8]).reason is PrefixMissReason.EVICTED


def test_as_many_evictions_are_remembered_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_misses, "REMEMBERED_EVICTIONS", 4)
    misses = PrefixMisses(1, [0], lambda block: None)
    for count in range(40):
        misses.evicted(0, bytes([count]))
        for recent in range(max(0, count - 3), count + 1):
            miss = misses.of_follower(bytes([recent]), b"before")
            assert miss.reason is PrefixMissReason.EVICTED
    assert misses.of_follower(b"\x00", b"before").reason is PrefixMissReason.FIRST_SEEN


def test_a_divergence_names_one_that_is_left_however_many_were_evicted() -> None:
    misses = PrefixMisses(8, [0] * 8, lambda block: None)
    for block in range(4):
        misses.named(block, b"before", f"req_{block}")
    for block, left in ((1, {0, 2, 3}), (3, {0, 2}), (0, {2})):
        misses.evicted(block, bytes([block]))
        miss = misses.of_follower(b"new", b"before")
        assert miss.request_id in {f"req_{one}" for one in left}
    misses.evicted(2, b"\x02")
    assert misses.of_follower(b"new", b"before") == PrefixMiss(PrefixMissReason.FIRST_SEEN)
