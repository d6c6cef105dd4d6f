"""Looks at the KV cache for the admin API: which request holds which blocks, and which prefixes are
shared. The work is cut in slices, each well under a millisecond, that are done between steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.inspected import (
    CACHED,
    FREE,
    MOST_MAPPED_BLOCKS,
    BlockHolder,
    Inspect,
    Inspected,
    KnownPrefix,
    KvState,
    PrefixState,
)
from engine.schedule.prefix import PrefixCache
from engine.schedule.scheduler import Scheduler
from engine.step.sequence import Sequence

# Looked at in one slice.
SLICE_BLOCKS = 4096
_SLICE_PREFIX_BLOCKS = 512
MOST_PREFIX_BLOCKS = 65_536

_HELD = -3  # by a sequence that is not known yet

_Numbers = npt.NDArray[np.int32]


class Inspection:
    """One answer in the making: call ``advance`` until it returns it."""

    def __init__(
        self, inspect: Inspect, scheduler: Scheduler | None, clock: Callable[[], float]
    ) -> None:
        """``scheduler``: None if the model has no KV cache."""
        self.inspect = inspect
        self._scheduler = scheduler
        self._clock = clock
        self._kv: KvState | None = None
        self._prefixes: PrefixState | None = None
        self._slices = self._run()

    def advance(self) -> Inspected | None:
        """Do one slice. Return the answer after the last one."""
        for _ in self._slices:
            return None
        asked = self.inspect
        return Inspected(
            number=asked.number, time=self._clock(), kv=self._kv, prefixes=self._prefixes
        )

    def _run(self) -> Generator[None, None, None]:
        scheduler = self._scheduler
        if scheduler is None:
            if self.inspect.kv:
                self._kv = _NO_CACHE
            if self.inspect.prefixes:
                self._prefixes = PrefixState(prefixes=(), cached_tokens=0, left_out=0)
            return
        if self.inspect.kv:
            self._kv = yield from _map_blocks(scheduler)
            if self.inspect.prefixes:
                yield
        if self.inspect.prefixes:
            self._prefixes = yield from _find_prefixes(scheduler.prefix, self.inspect.prefixes)


_NO_CACHE = KvState(
    blocks=0,
    block_size=0,
    blocks_each=1,
    active=0,
    cached=0,
    free=0,
    holders=(),
    runs=b"",
    evictions=0,
    preemptions=0,
)


# --- blocks -----------------------------------------------------------------------------------


def _map_blocks(scheduler: Scheduler) -> Generator[None, None, KvState]:
    pool = scheduler.pool
    each = -(-pool.num_blocks // MOST_MAPPED_BLOCKS)
    mapped = -(-pool.num_blocks // each)
    owners = np.empty(mapped, np.int32)
    counts = np.empty(mapped, np.int32)
    for first in range(0, mapped, SLICE_BLOCKS):
        last = min(first + SLICE_BLOCKS, mapped)
        held, keys = pool.some(first * each, min(last * each, pool.num_blocks), each)
        counts[first:last] = held
        named = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        owners[first:last] = np.where(counts[first:last] > 0, _HELD, np.where(named, CACHED, FREE))
        if last < mapped:
            yield
    holders = yield from _assign(scheduler, owners, each)
    left = owners == _HELD
    if left.any():  # sequences came or ended between slices, or a probe has borrowed a block
        owners[left] = len(holders)
        holders.append(BlockHolder("", int(left.sum()) * each, 0))
    known = pool.counts()
    return KvState(
        blocks=pool.num_blocks,
        block_size=scheduler.block_size,
        blocks_each=each,
        active=known.active,
        cached=known.cached,
        free=known.free,
        holders=tuple(holders),
        runs=_runs(owners, counts > 1).tobytes(),
        evictions=pool.evictions,
        preemptions=scheduler.counters.preemptions,
    )


def _assign(
    scheduler: Scheduler, owners: _Numbers, each: int
) -> Generator[None, None, list[BlockHolder]]:
    """Set the owner of each held block: of those who share it, the one that ranks first."""
    by_request: dict[str, list[Sequence]] = {}
    for sequence in list(scheduler.running):
        by_request.setdefault(sequence.request_id, []).append(sequence)
    holders = []
    done = 0
    for number, (request_id, sequences) in enumerate(by_request.items()):
        tables = [np.asarray(one.block_table, np.int32) for one in sequences]
        held = tables[0] if len(tables) == 1 else np.unique(np.concatenate(tables))
        sampled = held if each == 1 else held[held % each == 0] // each
        free_to_take = sampled[owners[sampled] == _HELD]
        owners[free_to_take] = number
        tokens = sum(one.num_computed_tokens for one in sequences)
        holders.append(BlockHolder(request_id, len(held), tokens))
        done += sum(map(len, tables)) + 64  # a sequence itself costs as much as some blocks
        if done >= SLICE_BLOCKS:
            done = 0
            yield
    return holders


def _runs(owners: _Numbers, shared: npt.NDArray[np.bool_]) -> _Numbers:
    """Return owner, length and sharing of each run of equal blocks."""
    changes = (owners[1:] != owners[:-1]) | (shared[1:] != shared[:-1])
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    lengths = np.diff(np.append(starts, len(owners)))
    return np.stack((owners[starts], lengths, shared[starts]), axis=1).astype("<i4")


# --- prefixes ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chain:
    """Blocks that follow one another and were found equally often. ``parent``: the number of the
    chain before it."""

    parent: int | None
    end: int
    blocks: int = 1


def _find_prefixes(cache: PrefixCache, most: int) -> Generator[None, None, PrefixState]:
    """Find the blocks of prefixes that were found, and join those that were found equally often to
    chains."""
    before = yield from _used_blocks(cache)
    hits = {block: cache.uses.hits[block] for block in before}
    last = {block: cache.uses.last[block] for block in before}
    children = Counter(block for block in before.values() if block is not None)
    yield
    order = yield from _ends_first(before, children)
    for block in order:
        parent = before[block]
        if parent is not None:
            hits[parent] += hits[block]
            last[parent] = max(last[parent], last[block])
    yield
    chains: list[_Chain] = []
    chain_of: dict[int, int] = {}
    held = cache.pool.ref_count
    for block in reversed(order):
        parent = before[block]
        if (
            parent is not None
            and children[parent] == 1
            and hits[parent] == hits[block]
            and held(parent) == held(block)
        ):
            chain_of[block] = chain_of[parent]
            chains[chain_of[block]].end = block
            chains[chain_of[block]].blocks += 1
        else:
            chain_of[block] = len(chains)
            chains.append(_Chain(None if parent is None else chain_of[parent], block))
        if len(chain_of) % _SLICE_PREFIX_BLOCKS == 0:
            yield
    # A chain was found at least as often as those that follow it, so it comes before them.
    ranked = sorted(range(len(chains)), key=lambda number: -hits[chains[number].end])[:most]
    places = {number: place for place, number in enumerate(ranked)}
    known = [
        KnownPrefix(
            None if chain.parent is None else places[chain.parent],
            chain.blocks * cache.block_size,
            held(chain.end),
            hits[chain.end],
            last[chain.end],
            cache.misses.request_of(chain.end),
        )
        for chain in (chains[number] for number in ranked)
    ]
    cached_tokens = cache.pool.num_named * cache.block_size
    return PrefixState(
        prefixes=tuple(known), cached_tokens=cached_tokens, left_out=len(chains) - len(ranked)
    )


def _used_blocks(cache: PrefixCache) -> Generator[None, None, dict[int, int | None]]:
    """Return the blocks of all prefixes that were found, each with the one before it."""
    all_hits, ends = cache.uses.hits, []
    for first in range(0, len(all_hits), 4 * SLICE_BLOCKS):
        some = all_hits[first : first + 4 * SLICE_BLOCKS]
        ends += [block for block, hits in enumerate(some, first) if hits]
        yield
    before: dict[int, int | None] = {}
    looked = 0
    for end in ends:
        block: int | None = end
        while block is not None and block not in before:
            before[block] = cache.before(block)
            block = before[block]
            looked += 1
            if looked % _SLICE_PREFIX_BLOCKS == 0:
                yield
        if len(before) >= MOST_PREFIX_BLOCKS:
            break
    return before


def _ends_first(
    before: dict[int, int | None], children: Counter[int]
) -> Generator[None, None, list[int]]:
    """Return the blocks in an order in which each comes after all that follow it."""
    left = children.copy()
    order = [block for block in before if not left[block]]
    for done, block in enumerate(order, 1):  # it grows meanwhile
        parent = before[block]
        if parent is not None:
            left[parent] -= 1
            if not left[parent]:
                order.append(parent)
        if done % (2 * _SLICE_PREFIX_BLOCKS) == 0:
            yield
    return order
