"""Trace identity of a request, and spans created at its end.

Every request has a trace id and a span id, so that its log line and headers carry them whether or
not spans are exported. Spans are created once, at the end, from timestamps that were recorded
anyway; nothing is started or closed while the request runs. The OpenTelemetry SDK is loaded only
if an OTLP endpoint is configured (``observability.otlp``); this module uses only its small API
package.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from observability.sampling import TraceSampling, sampling_of
from observability.schema import Attribute, Span, SpanEvent

AttributeValue = str | int | float | bool | Sequence[str] | Sequence[int]

_propagator = TraceContextTextMapPropagator()

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SCHEMES = ("http://", "https://")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class SpanIdentity:
    """The request's trace, the id of its server span, and the caller's span if there is one."""

    trace_id: int
    span_id: int
    sampled: bool
    parent: SpanContext | None = None

    @property
    def trace_id_hex(self) -> str:
        return f"{self.trace_id:032x}"

    @property
    def span_id_hex(self) -> str:
        return f"{self.span_id:016x}"

    @property
    def traceresponse(self) -> str:
        """Return the value of the W3C ``traceresponse`` header (Trace Context Level 2, draft)."""
        return f"00-{self.trace_id_hex}-{self.span_id_hex}-{int(self.sampled):02x}"


class FinishedEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened during a span."""

    event: SpanEvent
    time_ns: int
    attributes: Mapping[Attribute, AttributeValue | None]


class SpanLink(NamedTuple):
    """Another span that a span has to do with, usually in another trace."""

    trace_id: int
    span_id: int


class FinishedSpan(msgspec.Struct, frozen=True, gc=False):
    """A complete span. Times are nanoseconds since the epoch; attributes with value None are left
    out. ``error``: if set, the span's status is ERROR with this description."""

    span: Span
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[Attribute, AttributeValue | None]
    error: str | None = None
    events: Sequence[FinishedEvent] = ()
    links: Sequence[SpanLink] = ()


class Tracer(Protocol):
    """Decides which requests are sampled, and accepts finished spans."""

    @property
    def sampling(self) -> TraceSampling | None:
        """The rule in force, which may be changed; None if nothing is exported."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        """Return the identity of a request: in the caller's trace if ``traceparent`` is valid, else
        in a new one. The caller's sampled flag has no effect. Never raises, whatever a caller
        sends."""

    def trust(self, identity: SpanIdentity) -> SpanIdentity:
        """Return the identity as it is if the caller's sampled flag counts."""

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        """Accept a request's spans. Never blocks, never raises."""

    def write_root(self, identity: SpanIdentity, span: FinishedSpan) -> None:
        """Accept a span without a parent that is not a request, likewise."""

    def dropped_spans(self) -> int:
        """Return the number of spans lost so far: the queue was full, or the endpoint failed."""

    def close(self, timeout_seconds: float = 2.0) -> None:
        """Send what is queued, for at most ``timeout_seconds``."""


def new_span_id() -> int:
    return random.getrandbits(64) or 1


def parse_traceparent(traceparent: str | None, tracestate: str | None) -> SpanContext | None:
    """Return the caller's span, or None if the header is missing or invalid."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    context = get_current_span(_propagator.extract(carrier)).get_span_context()
    return context if context.is_valid else None


def identify(parent: SpanContext | None, *, sampled: bool) -> SpanIdentity:
    trace_id = parent.trace_id if parent else random.getrandbits(128) or 1
    return SpanIdentity(trace_id, new_span_id(), sampled, parent)


class IdentityTracer:
    """Creates identities and exports nothing."""

    @property
    def sampling(self) -> TraceSampling | None:
        return None

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        return identify(parse_traceparent(traceparent, tracestate), sampled=False)

    def trust(self, identity: SpanIdentity) -> SpanIdentity:
        return identity

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        pass

    def write_root(self, identity: SpanIdentity, span: FinishedSpan) -> None:
        pass

    def dropped_spans(self) -> int:
        return 0

    def close(self, timeout_seconds: float = 2.0) -> None:
        pass


def wants_newest_names(environ: Mapping[str, str]) -> bool:
    """Return whether OTEL_SEMCONV_STABILITY_OPT_IN names the GenAI attributes that are not yet
    in common use."""
    asked = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
    return "gen_ai_latest_experimental" in (one.strip() for one in asked)


def make_tracer(environ: Mapping[str, str], *, version: str) -> Tracer:
    """Create a tracer from the standard OTEL_* variables. Spans are exported only if
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT is set.

    Raises ValueError for what ``tracing_problem`` says.
    """
    if not _exports(environ):
        return IdentityTracer()
    _check_endpoint(environ)
    # Imported here, not at the top: the SDK and its exporter cost 0.4 s and 20 MiB, and most
    # servers export no spans.
    from observability.otlp import OtlpTracer

    return OtlpTracer(_protocol(environ), version=version)


def tracing_problem(environ: Mapping[str, str]) -> str | None:
    """Say which of the variables that ``make_tracer`` reads is wrong."""
    if _exports(environ):
        try:
            _check_endpoint(environ)
            sampling_of(environ)
        except ValueError as error:
            return str(error)
    return None


def _exports(environ: Mapping[str, str]) -> bool:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    silenced = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    return not disabled and not silenced and any(environ.get(name) for name in _ENDPOINTS)


def _check_endpoint(environ: Mapping[str, str]) -> None:
    """Raise ValueError, without the value, which may have a secret. gRPC needs no scheme."""
    name = next(name for name in _ENDPOINTS if environ.get(name))
    if _protocol(environ) != "grpc" and not environ[name].strip().lower().startswith(_SCHEMES):
        raise ValueError(f"{name} must begin with http:// or https://")


def _protocol(environ: Mapping[str, str]) -> str:
    for name in _PROTOCOLS:
        if protocol := environ.get(name):
            if protocol not in ("grpc", "http/protobuf"):
                raise ValueError(f"{name} is {protocol!r}; it must be grpc or http/protobuf")
            return protocol
    return "http/protobuf"


__all__ = [
    "AttributeValue",
    "FinishedEvent",
    "FinishedSpan",
    "IdentityTracer",
    "SpanContext",
    "SpanIdentity",
    "SpanKind",
    "SpanLink",
    "TraceFlags",
    "Tracer",
    "identify",
    "make_tracer",
    "new_span_id",
    "parse_traceparent",
    "tracing_problem",
    "wants_newest_names",
]
