"""Joins what the workers of a server saw at one moment. Pure; the order of the workers does not
matter, so that each of them says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from service.engine.silence import WORST_FIRST, EngineStatus
from service.overview.snapshot import OneEngine, Snapshot

# Each worker's own.
_ADDED = (
    *("in_flight", "sequences", "waiting", "prefilling", "grammars_waiting"),
    *("receiving", "streams", "stalled"),
)
# Each worker's own, or seen by each at a slightly different time.
_LARGEST = (
    *("uptime", "drain_seconds_left", "silence", "oldest_waiting", "longest_gap"),
    *("connections", "connection_limit", "loop_lag", "oldest_grammar", "longest_stall"),
)


def joined_snapshot(seen: Sequence[Snapshot], chosen: Snapshot) -> Snapshot:
    """Return ``chosen``, one of ``seen``, with what all of them add up to. The engines and what is
    computed from the shared history are the same for all."""
    longest = max(seen, key=lambda one: one.longest_prefill)
    waits = [one.predicted_wait for one in seen if one.predicted_wait is not None]
    return msgspec.structs.replace(
        chosen,
        **{name: sum(getattr(one, name) for one in seen) for name in _ADDED},
        **{name: max(getattr(one, name) for one in seen) for name in _LARGEST},
        draining=any(one.draining for one in seen),
        engines=tuple(map(_joined_engine, zip(*(one.engines for one in seen), strict=False))),
        predicted_wait=max(waits, default=None),
        longest_prefill=longest.longest_prefill,
        longest_prefill_tokens=longest.longest_prefill_tokens,
        since_request=min(one.since_request for one in seen),
    )


def _joined_engine(seen: Sequence[OneEngine]) -> OneEngine:
    worst = min(seen, key=lambda one: WORST_FIRST.index(EngineStatus(one.status)))
    return msgspec.structs.replace(
        worst,
        silence=max(one.silence for one in seen),
        sequences=sum(one.sequences for one in seen),
        deaths=max(one.deaths for one in seen),
    )


def joined_held(seen: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return how many tokens each key's sequences hold, over all workers."""
    held: Counter[str] = Counter()
    for one in seen:
        held.update(one)
    return dict(held)


def largest_holder(held: Mapping[str, int]) -> tuple[str | None, float]:
    """Return the alias of the key that holds most of the KV cache, and its share. ``held``: tokens
    by the alias; "" for those of no key."""
    keys = {alias: tokens for alias, tokens in held.items() if alias}
    if not keys:
        return None, 0.0
    most = max(keys, key=lambda alias: keys[alias])
    return most, keys[most] / sum(held.values())
