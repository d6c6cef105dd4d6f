"""What is kept of a request: its ``RequestRecord`` as the admin API shows it. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from engine.messages import Finished
from observability import phases
from observability.admin_api import (
    EventKind,
    KeptRequest,
    Neighbour,
    PrefixReport,
    RequestEvent,
)
from service.telemetry.phases import mean_gap, other_seconds, seconds_of
from service.telemetry.record import RequestRecord

MOST_EVENTS = 64
MOST_NEIGHBOURS = 3

# Digits of a second: microseconds, so that a record takes little room.
_DIGITS = 6


def ended_request(record: RequestRecord, seconds: Mapping[str, float]) -> KeptRequest:
    """``seconds``: of each phase that it reached. ``record`` has ended."""
    ended = record.received_time if record.ended_time is None else record.ended_time
    return _request(record, seconds, ended, live=False)


def live_request(record: RequestRecord, *, with_events: bool = True) -> KeptRequest:
    """Return what is known of a request that has not ended."""
    if record.update is not None:
        record.update()
    now = time.monotonic()
    if record.flush.waiting_since is not None:
        record = replace(record, flush=record.flush.so_far(now))
    return _request(record, seconds_of(record), now, live=True, with_events=with_events)


def _request(
    record: RequestRecord,
    seconds: Mapping[str, float],
    now: float,
    *,
    live: bool,
    with_events: bool = True,
) -> KeptRequest:
    received, begin = record.received_wall_ns / 1e9, record.received_time
    first = record.first_token_time
    gap, longest_gap = mean_gap(record.sequences), record.itl_max
    if gap is not None and longest_gap is not None:
        longest_gap = max(gap, longest_gap)  # the engine timed the one, the worker the other
    return KeptRequest(
        request_id=record.request_id,
        received=round(received, _DIGITS),
        route=record.route,
        live=live,
        phase=current_phase(record) if live else None,
        ended=None if live else round(received + now - begin, _DIGITS),
        trace_id=record.trace_id,
        span_id=record.span_id,
        response_id=record.response_id,
        client_request_id=record.client_request_id,
        key=record.key,
        client_address=record.client_address,
        user_agent=record.user_agent,
        model=record.model,
        status=record.status,
        outcome=record.outcome,
        error=record.error,
        error_code=record.error_code,
        error_field=record.error_field,
        retry_after=record.retry_after,
        waiting=record.waiting,
        limited_by=record.limited_by,
        stream=record.stream,
        choices=record.choices,
        max_tokens=record.max_tokens,
        temperature=record.temperature,
        top_p=record.top_p,
        finish_reasons=tuple(record.finish_reasons),
        ignored=record.ignored,
        prompt_tokens=record.prompt_tokens,
        prompt_tokens_computed=record.prompt_tokens_computed if live else 0,
        cached_tokens=record.cached_tokens,
        output_tokens=record.output_tokens,
        reasoning_tokens=record.reasoning_tokens,
        preemptions=sum(one.preemptions for one in record.sequences),
        handovers=sum(one.handovers for one in record.sequences),
        phases={name: round(spent, _DIGITS) for name, spent in seconds.items()},
        other=round(other_seconds(record, seconds, now), _DIGITS),
        total=round(now - begin, _DIGITS),
        ttft=None if first is None else round(first - begin, _DIGITS),
        itl_mean=None if gap is None else round(gap, _DIGITS),
        itl_max=None if longest_gap is None else round(longest_gap, _DIGITS),
        prefix=prefix_report(record),
        events=events_of(record) if with_events else (),
        neighbours=_neighbours(record),
    )


def current_phase(record: RequestRecord) -> str:
    """Return the phase that a live request is in."""
    sequences = record.sequences
    if not sequences:
        if record.preparing is not None and record.preparing.reached is not None:
            return record.preparing.reached.phase
        return phases.ADMITTING.name if record.intervals else phases.RECEIVING.name
    if record.is_generated:
        return phases.FLUSHING.name
    if _any_reached(sequences, "first_token_time"):
        return phases.DECODING.name
    if _any_reached(sequences, "first_scheduled_time"):
        return phases.PREFILLING.name
    return phases.QUEUEING.name


def _any_reached(sequences: Sequence[Finished], name: str) -> bool:
    return any(getattr(one, name) is not None for one in sequences)


def prefix_report(record: RequestRecord) -> PrefixReport | None:
    miss = record.prefix_miss
    if miss is None:
        return None
    place = record.miss_place
    ago = miss.seconds_ago
    return PrefixReport(
        matched=record.cached_tokens,
        of=record.prompt_tokens,
        stopped=miss.reason.value,
        request_id=miss.request_id or None,
        seconds_ago=None if ago is None else round(ago, _DIGITS),
        at_message=None if place is None else place.number,
        messages=None if place is None else place.of,
        role=None if place is None else place.role,
        to_message=None if place is None else place.last,
    )


def events_of(record: RequestRecord) -> tuple[RequestEvent, ...]:
    """Return what happened, in order of time. Of more than ``MOST_EVENTS`` the gaps and waits are
    left out first, the shortest before the others."""
    begin = record.received_time
    found = [
        RequestEvent(kind, time - begin, value, choice)
        for choice, (kind, time, value) in record.choices_happenings
    ]
    found += [RequestEvent(kind, time - begin, value) for kind, time, value in record.happenings]
    found += [
        RequestEvent(EventKind.STALLED, at - begin, waited) for at, waited in record.flush.longest
    ]
    if len(found) > MOST_EVENTS:
        found.sort(key=_weight, reverse=True)
        del found[MOST_EVENTS:]
    found.sort(key=_at)
    return tuple(found)


_at = attrgetter("at")
_BY_LENGTH = frozenset({EventKind.GAP, EventKind.STALLED})


def _weight(event: RequestEvent) -> tuple[int, float]:
    if event.kind in _BY_LENGTH:
        return 0, event.value
    if event.kind is EventKind.OUTPUT:
        return 1, -event.value
    return 2, -event.at


def _neighbours(record: RequestRecord) -> tuple[Neighbour, ...]:
    """Return the longest steps of all choices, the longest first."""
    longest = record.longest_steps
    if len(longest) > MOST_NEIGHBOURS:  # of several choices, which share most of them
        steps = {one.time: one for one in longest}
        longest = sorted(steps.values(), key=lambda one: -one.seconds)[:MOST_NEIGHBOURS]
    return tuple(
        Neighbour(
            at=one.time - record.received_time,
            seconds=one.seconds,
            tokens=one.tokens,
            sequences=one.sequences,
            prefills=one.prefills,
        )
        for one in longest
    )
