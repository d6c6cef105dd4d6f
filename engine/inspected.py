"""The messages with which the service looks into the engine's KV cache, and the answer; and which
steps are reported to it.

They are part of the protocol in ``engine.messages``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MOST_PREFIXES = 1000
# Of a KV map. Of larger pools, every second, third … block is looked at.
MOST_MAPPED_BLOCKS = 16_384

CACHED = -1  # owners of blocks that no sequence holds
FREE = -2


class Inspect(msgspec.Struct, frozen=True, tag="inspect", omit_defaults=True):
    """Send an ``Inspected`` with this number. ``prefixes``: the most prefixes to send; 0: none.
    The answer may be as old as ``engine.loop.inspections.FRESH_SECONDS``."""

    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    kv: bool = True
    prefixes: Annotated[int, Meta(ge=0, le=MOST_PREFIXES)] = 0


class WatchSteps(msgspec.Struct, frozen=True, tag="watch_steps"):
    """Report every step to this connection (as at first), or only some while it has no
    sequences."""

    every_step: bool


class BlockHolder(msgspec.Struct, frozen=True, array_like=True):
    """A request whose sequences hold ``blocks``, with the keys and values of ``tokens`` in them.
    Blocks that it shares count in full."""

    request_id: str
    blocks: int
    tokens: int


class KvState(msgspec.Struct, frozen=True, kw_only=True):
    """The pool, its blocks in order of their numbers. ``runs``: packed int32, three for each run of
    equal blocks: its owner (an index into ``holders``, ``CACHED`` or ``FREE``), its length, and 1
    if several sequences hold each of its blocks. Only every ``blocks_each``-th block was looked
    at. ``evictions`` and ``preemptions`` are totals since the engine's start."""

    blocks: int
    block_size: int
    blocks_each: int
    active: int
    cached: int
    free: int
    holders: tuple[BlockHolder, ...]
    runs: bytes
    evictions: int
    preemptions: int


class KnownPrefix(msgspec.Struct, frozen=True, array_like=True):
    """A chain of cached blocks that requests have found, from the prompt's start or from the end
    of ``parent``, an earlier one in the answer. ``hits``: how often it was found; ``last_used``:
    monotonic seconds; ``request_id``: of a request that computed its end."""

    parent: int | None
    tokens: int
    holders: int  # sequences that hold its end
    hits: int
    last_used: float
    request_id: str


class PrefixState(msgspec.Struct, frozen=True, kw_only=True):
    """The prefixes with most hits; ``left_out``: how many more there are."""

    prefixes: tuple[KnownPrefix, ...]
    cached_tokens: int
    left_out: int


class Inspected(msgspec.Struct, frozen=True, kw_only=True, tag="inspected"):
    """The answer to the ``Inspect`` of this number, as of ``time``."""

    number: int
    time: float
    kv: KvState | None = None
    prefixes: PrefixState | None = None
