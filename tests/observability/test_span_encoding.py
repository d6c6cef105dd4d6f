"""Spans in OTLP's encoding, held against what the SDK's own encoder makes of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from observability import schema, span_encoding
from observability.admin_api import EventKind
from observability.schema import Attribute
from observability.span_encoding import encode_place, encode_request, encode_span
from observability.tracing import FinishedEvent, FinishedSpan, SpanLink

TRACE, PARENT, OWN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 0x1
RESOURCE = Resource({"service.name": "quire", "numbers": [1, 2]})
SCOPE = InstrumentationScope("quire", "1.2.3")

VALUES: tuple[Any, ...] = (
    *("", "text", "x" * 127, "x" * 128, "ä" * 20_000, "half \ud800 of a pair"),
    *(0, 1, 127, 128, -1, 2**31, 2**63 - 1, -(2**63)),
    *(True, False, 0.0, -0.0, 1.0, 1e308, math.inf),
    *((), ("stop", "length"), (0, 1200)),
)


EVENTS = (
    FinishedEvent(schema.EVENTS[EventKind.PREEMPTED], 10**18 + 5, {}),
    FinishedEvent(
        schema.EVENTS[EventKind.GAP],
        10**18 + 6,
        {schema.ATTR_CHOICE: 300, schema.ATTR_EVENT_SECONDS: 0.25},
    ),
)
LINKS = (SpanLink(TRACE, PARENT), SpanLink(1, 2))


def context(span_id: int, *, remote: bool = False, state: TraceState | None = None) -> SpanContext:
    return SpanContext(TRACE, span_id, remote, TraceFlags(TraceFlags.SAMPLED), state)


def by_the_sdk(span: FinishedSpan, kind: SpanKind, parent: SpanContext | None) -> Any:
    state = parent.trace_state if parent else None
    status = Status(StatusCode.ERROR, span.error) if span.error else Status()
    attributes: dict[str, Any] = {
        attribute.name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for attribute, value in span.attributes.items()
        if value is not None
    }
    readable = ReadableSpan(
        span.name,
        context=context(OWN, state=state),
        parent=parent,
        resource=RESOURCE,
        attributes=attributes,
        kind=kind,
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        events=[
            Event(each.event.name, {a.name: v for a, v in each.attributes.items()}, each.time_ns)
            for each in span.events
        ],
        links=[
            Link(SpanContext(each.trace_id, each.span_id, is_remote=False)) for each in span.links
        ],
        instrumentation_scope=SCOPE,
    )
    return encode_spans([readable])


def by_us(span: FinishedSpan, kind: int, parent: SpanContext | None, origin: Any) -> Any:
    place = encode_place(
        trace_id=TRACE.to_bytes(16, "big"),
        parent_id=parent.span_id.to_bytes(8, "big") if parent else b"",
        parent_is_remote=parent is not None and parent.is_remote,
        trace_state=parent.trace_state.to_header() if parent else "",
    )
    encoded = encode_span(span, kind=kind, place=place, span_id=OWN.to_bytes(8, "big"))
    resource = origin.resource_spans[0].resource.SerializeToString()
    scope = origin.resource_spans[0].scope_spans[0].scope.SerializeToString()
    return ExportTraceServiceRequest.FromString(encode_request(resource, scope, [encoded]))


@pytest.mark.parametrize("error", [None, "error:engine"])
@pytest.mark.parametrize(
    ("kind", "number", "parent"),
    [
        (SpanKind.SERVER, 2, None),
        (SpanKind.SERVER, 2, context(PARENT, remote=True, state=TraceState([("a", "b")]))),
        (SpanKind.INTERNAL, 1, context(PARENT)),
    ],
    ids=["root", "with a caller", "below another"],
)
def test_a_span_is_encoded_as_the_sdk_does(
    kind: SpanKind, number: int, parent: SpanContext | None, error: str | None
) -> None:
    attributes = {Attribute(f"attribute.{index}", ""): value for index, value in enumerate(VALUES)}
    attributes[Attribute("absent", "")] = None
    span = FinishedSpan(
        schema.SPAN_REQUEST, "chat m", 10**18, 10**18 + 1, attributes, error, EVENTS, LINKS
    )
    expected = by_the_sdk(span, kind, parent)
    for request in (expected, found := by_us(span, number, parent, expected)):
        # An unset status and an absent one are the same.
        for encoded in request.resource_spans[0].scope_spans[0].spans:
            if not encoded.status.code:
                encoded.ClearField("status")
    assert found == expected


def test_what_does_not_come_again_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[Any, bytes] = {}
    monkeypatch.setattr(span_encoding, "_kept", kept)
    digits = "0123456789abcdef" * 2
    once: dict[Attribute, Any] = {
        schema.ATTR_REQUEST_ID: f"req_{digits}",
        schema.ATTR_RESPONSE_ID: f"msg_{digits}",
        schema.ATTR_EVENT_SECONDS: 0.25,
    }
    again: dict[Attribute, Any] = {
        schema.ATTR_OUTCOME: "stop",
        schema.ATTR_FINISH_REASONS: ("tool_calls",),
        schema.ATTR_CACHED_TOKENS: 2048,
    }
    span = FinishedSpan(schema.SPAN_REQUEST, "chat", 1, 2, once | again)
    encode_span(span, kind=2, place=b"", span_id=bytes(8))
    assert {attribute for _, attribute, *_ in kept} == set(again)
    monkeypatch.setattr(span_encoding, "_KEPT", len(again))
    for tokens in range(100):
        more = FinishedSpan(schema.SPAN_REQUEST, "chat", 1, 2, {schema.ATTR_CACHED_TOKENS: tokens})
        encode_span(more, kind=2, place=b"", span_id=bytes(8))
    assert len(kept) <= len(again)


def test_equal_values_of_different_types_are_not_mixed_up() -> None:
    for value, kind in ((1, "int_value"), (True, "bool_value"), (1.0, "double_value")):
        span = FinishedSpan(schema.SPAN_REQUEST, "m", 1, 2, {schema.ATTR_CHOICES: value})
        found = by_us(span, 1, None, by_the_sdk(span, SpanKind.INTERNAL, None))
        (attribute,) = found.resource_spans[0].scope_spans[0].spans[0].attributes
        assert attribute.value.WhichOneof("value") == kind
