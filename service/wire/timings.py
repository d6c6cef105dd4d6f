"""A breakdown of a request's time, for clients that request it (``timings: true``); the same in
every API."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.messages import PrefixMissReason
from service.generation.request import Generation


class Prefix(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the prefix cache had of the prompts: ``matched`` tokens ``of`` all, and why no more of
    the first prompt (``engine.messages.PrefixMissReason``). ``at_message`` (from 1) of
    ``messages``, and its ``role``: where the first token lies that it did not have."""

    matched: int
    of: int
    stopped: str
    at_message: int | None = None
    messages: int | None = None
    role: str | None = None


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds since the request arrived, except ``queue_ms``: time in the engine's queue,
    ``prefill_ms``: from first scheduling to first token, and ``mean_itl_ms``: mean time between two
    tokens of one choice. Null for what was never reached. Rates are tokens per second, of all
    choices together."""

    queue_ms: float | None
    prefill_ms: float | None
    time_to_first_token_ms: float | None
    total_ms: float | None
    mean_itl_ms: float | None
    prompt_tokens_per_second: float | None
    output_tokens_per_second: float | None
    prefix: Prefix | None


def timings_of(generation: Generation) -> Timings:
    """Compute the timings so far from the engine's records."""
    records = generation.records()
    arrival = generation.request.arrival_time
    queued = _least(record.queued_time for record in records)
    scheduled = _least(record.first_scheduled_time for record in records)
    first = _least(record.first_token_time for record in records)
    last = max((r.last_token_time for r in records if r.last_token_time is not None), default=None)
    # When the first token reached the response, as in the log; the engine had it a little earlier.
    reached = generation.first_token_time
    gaps = sum(max(0, record.output_tokens - 1) for record in records)
    decoding = sum(
        record.last_token_time - record.first_token_time
        for record in records
        if record.last_token_time is not None and record.first_token_time is not None
    )
    return Timings(
        queue_ms=None if queued is None else _milliseconds(queued, scheduled),
        prefill_ms=None if scheduled is None else _milliseconds(scheduled, first),
        time_to_first_token_ms=_milliseconds(arrival, reached),
        total_ms=_milliseconds(arrival, None if last is None else max(last, reached or last)),
        mean_itl_ms=round(decoding / gaps * 1e3, 3) if gaps else None,
        prompt_tokens_per_second=_rate(
            generation.prompt_tokens - generation.cached_tokens, scheduled, first
        ),
        output_tokens_per_second=_rate(gaps, first, last),
        prefix=_prefix(generation),
    )


def _prefix(generation: Generation) -> Prefix | None:
    if generation.prefix_miss is None:
        return None
    reason = generation.prefix_miss.reason
    if reason is PrefixMissReason.SALT:
        # A salt keeps others from finding out what is cached; only the log has the reason.
        reason = PrefixMissReason.FIRST_SEEN
    place = generation.miss_place or (None, None, None)
    return Prefix(generation.cached_tokens, generation.prompt_tokens, reason.value, *place[:3])


def _least(times: Iterable[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _milliseconds(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1e3, 3)


def _rate(tokens: int, start: float | None, end: float | None) -> float | None:
    if start is None or end is None or end <= start:
        return None
    return round(tokens / (end - start), 1)
