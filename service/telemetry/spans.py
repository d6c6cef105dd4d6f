"""Converts a request's record to spans: one for the request, and below it one for each phase; the
phases in the engine once for each choice.

Pure functions: the record in, finished spans out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.messages import Finished
from observability import phases, schema
from observability.admin_api import EventKind
from observability.outcomes import OutcomeGroup, group_of
from observability.schema import Attribute
from observability.tracing import FinishedEvent, FinishedSpan, SpanLink
from service.engine.happenings import Happening
from service.telemetry.phases import before_engine, in_engine
from service.telemetry.record import Interval, RequestRecord

_ERRORS = (OutcomeGroup.REFUSED, OutcomeGroup.FAILED)
# The time between two phases that follow one another at once.
_NOTHING_SECONDS = 50e-6

_OUTPUT, _GAP = EventKind.OUTPUT, EventKind.GAP  # an enum's members are slow to look up

_Attributes = dict[Attribute, str | int | float | None]
# Converts monotonic seconds to nanoseconds since the epoch.
_WallClock = Callable[[float], int]


def server_span(
    record: RequestRecord, *, links: Sequence[SpanLink] = (), newest_names: bool = False
) -> FinishedSpan:
    """``record`` must have ended. ``newest_names``: also attributes that the conventions have not
    released."""
    if record.ended_time is None:
        raise ValueError(f"request {record.request_id} has not ended")
    wall_ns = _wall_clock(record)
    group = group_of(record.outcome)
    failed = group is OutcomeGroup.FAILED or record.status >= 500
    attributes = {
        schema.ATTR_OPERATION: record.operation or None,
        schema.ATTR_PROVIDER: "quire",
        schema.ATTR_REQUEST_MODEL: record.model or None,
        schema.ATTR_MAX_TOKENS: record.max_tokens,
        schema.ATTR_TEMPERATURE: record.temperature,
        schema.ATTR_TOP_P: record.top_p,
        schema.ATTR_STREAM: record.stream,
        schema.ATTR_CHOICES: record.choices,
        schema.ATTR_RESPONSE_ID: record.response_id or None,
        schema.ATTR_FINISH_REASONS: tuple(record.finish_reasons) or None,
        schema.ATTR_INPUT_TOKENS: record.prompt_tokens,
        schema.ATTR_OUTPUT_TOKENS: record.output_tokens,
        schema.ATTR_CACHED_TOKENS: record.cached_tokens,
        schema.ATTR_OUTCOME: record.outcome,
        schema.ATTR_REQUEST_ID: record.request_id,
        schema.ATTR_KEY: record.key,
        schema.ATTR_PREEMPTIONS: sum(sequence.preemptions for sequence in record.sequences),
        schema.ATTR_HANDOVERS: sum(sequence.handovers for sequence in record.sequences),
        schema.ATTR_ERROR_TYPE: record.outcome if group in _ERRORS else None,
        schema.ATTR_ERROR_CODE: record.error_code,
        schema.ATTR_ERROR_FIELD: record.error_field,
        schema.ATTR_RETRY_AFTER: record.retry_after,
        schema.ATTR_WAITING: record.waiting,
        schema.ATTR_KEPT: record.kept_because,
        **_protocol_attributes(record),
    }
    if newest_names:
        attributes |= _newest_attributes(record)
    name = schema.SPAN_REQUEST.name.format(
        operation=record.operation or record.route, model=record.model
    )
    return FinishedSpan(
        schema.SPAN_REQUEST,
        name.strip(),
        record.received_wall_ns,
        wall_ns(record.ended_time),
        attributes,
        error=(record.error or record.outcome) if failed else None,
        events=_events_of_the_whole(record, wall_ns),
        links=links,
    )


def _newest_attributes(record: RequestRecord) -> _Attributes:
    first = record.first_token_time
    return {
        schema.ATTR_RESPONSE_MODEL: record.model or None,
        schema.ATTR_FIRST_CHUNK: None if first is None else first - record.received_time,
        schema.ATTR_REASONING_TOKENS: record.reasoning_tokens or None,
    }


def _events_of_the_whole(record: RequestRecord, wall_ns: _WallClock) -> list[FinishedEvent]:
    """Return what happened to the request, and to choices that have no decode span."""
    sequences = record.sequences
    found = [_event(wall_ns, each, {}) for each in record.happenings]
    for choice, each in record.choices_happenings:
        if choice >= len(sequences) or sequences[choice].first_token_time is None:
            found.append(_event(wall_ns, each, {schema.ATTR_CHOICE: choice}))
    return found


def _event(wall_ns: _WallClock, happening: Happening, attributes: _Attributes) -> FinishedEvent:
    """``attributes``: the choice, if it happened to one."""
    kind, time, value = happening
    declared = schema.EVENTS[kind]
    if kind is _OUTPUT:
        attributes[schema.ATTR_EVENT_TOKEN] = int(value)
    elif kind is _GAP:
        attributes[schema.ATTR_EVENT_SECONDS] = value
    return FinishedEvent(declared, wall_ns(time), attributes)


def _stalled(wall_ns: _WallClock, begin: float, seconds: float) -> FinishedEvent:
    attributes: _Attributes = {schema.ATTR_EVENT_SECONDS: seconds}
    return FinishedEvent(schema.EVENTS[EventKind.STALLED], wall_ns(begin), attributes)


def _protocol_attributes(record: RequestRecord) -> dict[schema.Attribute, str | int | None]:
    if record.grpc_status is None:
        return {
            schema.ATTR_HTTP_METHOD: record.http_method,
            schema.ATTR_HTTP_ROUTE: record.http_route or None,
            schema.ATTR_HTTP_STATUS: record.status or None,
        }
    service, _, method = record.http_route.strip("/").partition("/")
    return {
        schema.ATTR_RPC_SYSTEM: "grpc",
        schema.ATTR_RPC_SERVICE: service,
        schema.ATTR_RPC_METHOD: method,
        schema.ATTR_RPC_STATUS: record.grpc_status,
    }


def phase_spans(record: RequestRecord) -> Iterator[FinishedSpan]:
    """Yield the phases in order of time, those in the engine choice by choice. A phase that was
    never reached has no span; one that was interrupted has several."""
    wall_ns = _wall_clock(record)
    for one in before_engine(record):
        if one.phase != phases.ADMITTING.name or one.end - one.begin > _NOTHING_SECONDS:
            yield _span(wall_ns, one, {})
    for choice, sequence in enumerate(record.sequences):
        for one in in_engine(sequence):
            events: Sequence[FinishedEvent] = ()
            if record.choices_happenings and one.phase == phases.DECODING.name:
                events = [
                    _event(wall_ns, _not_after(one.end, each), {schema.ATTR_CHOICE: choice})
                    for of, each in record.choices_happenings
                    if of == choice
                ]
            yield _span(wall_ns, one, _engine_attributes(one.phase, choice, sequence), events)
    flush = record.flush
    if flush.seconds:
        waited = Interval(phases.FLUSHING.name, flush.begin, flush.end)
        stalls = [_stalled(wall_ns, begin, seconds) for begin, seconds in sorted(flush.longest)]
        yield _span(wall_ns, waited, {schema.ATTR_FLUSH_SECONDS: flush.seconds}, stalls)


def _not_after(last_token: float, happening: Happening) -> Happening:
    """Return an event of a token as not later than the last one. Their times are noted a few
    microseconds apart: when the step was reported, and in the scheduler."""
    kind, time, value = happening
    return Happening(kind, min(time, last_token), value) if kind in (_OUTPUT, _GAP) else happening


def _engine_attributes(phase: str, choice: int, sequence: Finished) -> _Attributes:
    attributes: _Attributes = {schema.ATTR_CHOICE: choice}
    if phase == phases.PREFILLING.name:
        attributes[schema.ATTR_INPUT_TOKENS] = sequence.prompt_tokens
        attributes[schema.ATTR_CACHED_TOKENS] = sequence.cached_tokens
    elif phase == phases.DECODING.name:
        attributes[schema.ATTR_OUTPUT_TOKENS] = sequence.output_tokens
        attributes[schema.ATTR_PREEMPTIONS] = sequence.preemptions
        attributes[schema.ATTR_HANDOVERS] = sequence.handovers
    return attributes


def _span(
    wall_ns: _WallClock,
    interval: Interval,
    attributes: _Attributes,
    events: Sequence[FinishedEvent] = (),
) -> FinishedSpan:
    phase, begin, end = interval
    return FinishedSpan(
        schema.PHASE_SPANS[phase],
        phase,
        wall_ns(begin),
        wall_ns(end),
        attributes,
        None,
        events,
    )


def _wall_clock(record: RequestRecord) -> _WallClock:
    received = record.received_wall_ns - int(record.received_time * 1e9)
    return lambda monotonic: received + int(monotonic * 1e9)
