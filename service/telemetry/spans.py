"""Converts a request's record to spans: one for the request, and queue, prefill, decode for each
choice.

Pure functions: the record in, finished spans out.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.messages import Finished
from observability import schema
from observability.outcomes import OutcomeGroup, group_of
from observability.tracing import FinishedSpan
from service.telemetry.record import RequestRecord


def server_span(record: RequestRecord) -> FinishedSpan:
    """``record`` must have ended."""
    if record.ended_time is None:
        raise ValueError(f"request {record.request_id} has not ended")
    failed = group_of(record.outcome) is OutcomeGroup.FAILED or record.status >= 500
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
        schema.ATTR_ERROR_TYPE: record.outcome if failed else None,
        **_protocol_attributes(record),
    }
    name = schema.SPAN_REQUEST.name.format(
        operation=record.operation or record.route, model=record.model
    )
    return FinishedSpan(
        schema.SPAN_REQUEST,
        name.strip(),
        record.received_wall_ns,
        _wall_ns(record, record.ended_time),
        attributes,
        error=(record.error or record.outcome) if failed else None,
    )


def _protocol_attributes(record: RequestRecord) -> dict[schema.Attribute, str | int | None]:
    if record.grpc_status is None:
        return {
            schema.ATTR_HTTP_METHOD: record.http_method,
            schema.ATTR_HTTP_ROUTE: record.http_route,
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
    """Yield the phases of each choice. A phase cut short by the sequence's end ends there; a phase
    that was never reached has no span."""
    for choice, sequence in enumerate(record.sequences):
        yield from _phases_of(record, choice, sequence)


def _phases_of(record: RequestRecord, choice: int, sequence: Finished) -> Iterator[FinishedSpan]:
    ended = sequence.finished_time
    scheduled, first = sequence.first_scheduled_time, sequence.first_token_time
    queued_until = ended if scheduled is None else scheduled
    yield FinishedSpan(
        schema.SPAN_QUEUE,
        schema.SPAN_QUEUE.name,
        record.received_wall_ns,
        _wall_ns(record, queued_until),
        {schema.ATTR_CHOICE: choice},
    )
    if scheduled is not None:
        yield FinishedSpan(
            schema.SPAN_PREFILL,
            schema.SPAN_PREFILL.name,
            _wall_ns(record, scheduled),
            _wall_ns(record, ended if first is None else first),
            {
                schema.ATTR_CHOICE: choice,
                schema.ATTR_INPUT_TOKENS: sequence.prompt_tokens,
                schema.ATTR_CACHED_TOKENS: sequence.cached_tokens,
            },
        )
    if first is not None:
        last = sequence.last_token_time
        yield FinishedSpan(
            schema.SPAN_DECODE,
            schema.SPAN_DECODE.name,
            _wall_ns(record, first),
            _wall_ns(record, first if last is None else last),
            {
                schema.ATTR_CHOICE: choice,
                schema.ATTR_OUTPUT_TOKENS: sequence.output_tokens,
                schema.ATTR_PREEMPTIONS: sequence.preemptions,
                schema.ATTR_HANDOVERS: sequence.handovers,
            },
        )


def _wall_ns(record: RequestRecord, time: float) -> int:
    return record.received_wall_ns + round((time - record.received_time) * 1e9)
