"""Spans over OTLP, by the OpenTelemetry SDK. Import only where an endpoint is configured.

Spans are built complete and given to the SDK's batch processor, which sends them from a thread of
its own. The queue is bounded; what does not fit, and what the endpoint does not take, is counted
and lost: telemetry never holds up a request or the server's end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from observability.tracing import (
    FinishedSpan,
    SpanIdentity,
    identify,
    new_span_id,
    parse_traceparent,
)

MAX_QUEUED_SPANS = 8192
EXPORT_TIMEOUT_SECONDS = 5.0
_SCHEDULE_DELAY_MS = 1000.0
_BATCH_SPANS = 512


def _exporter(protocol: str) -> SpanExporter:
    """The endpoint, headers and certificates are read from OTEL_EXPORTER_OTLP_* by the exporter.

    Only the transport in use is imported: gRPC alone is 16 MiB.
    """
    timeout = None if _timeout_is_set() else EXPORT_TIMEOUT_SECONDS
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
            OTLPSpanExporter as GrpcExporter,
        )

        return GrpcExporter(timeout=timeout)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as HttpExporter,
        )

        return HttpExporter(timeout=timeout)
    raise ValueError(
        f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; it must be grpc or http/protobuf"
    )


def _timeout_is_set() -> bool:
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
        or os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT")
    )


def _sampler() -> Sampler:
    """OTEL_TRACES_SAMPLER and its argument, as the specification names them.

    Raises ValueError for an unknown sampler or a ratio that is no number from 0 to 1.
    """
    name = os.environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").strip().lower()
    ratio = TraceIdRatioBased(float(os.environ.get("OTEL_TRACES_SAMPLER_ARG") or 1.0))
    samplers: dict[str, Sampler] = {
        "always_on": ALWAYS_ON,
        "always_off": ALWAYS_OFF,
        "traceidratio": ratio,
        "parentbased_always_on": ParentBased(ALWAYS_ON),
        "parentbased_always_off": ParentBased(ALWAYS_OFF),
        "parentbased_traceidratio": ParentBased(ratio),
    }
    if name not in samplers:
        raise ValueError(f"OTEL_TRACES_SAMPLER is {name!r}; it must be one of {sorted(samplers)}")
    return samplers[name]


def _resource(version: str) -> Resource:
    named = os.environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    own = {SERVICE_VERSION: version} if named else {SERVICE_NAME: "quire", SERVICE_VERSION: version}
    return Resource.create(own)


class _CountingExporter(SpanExporter):
    """Counts what it was handed and what got lost on the way out."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.taken = 0
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self.taken += len(spans)
            if result is not SpanExportResult.SUCCESS:
                self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class OtlpTracer:
    """A ``Tracer`` (see ``observability.tracing``) that samples and exports."""

    def __init__(self, protocol: str, *, version: str) -> None:
        self._sampler = _sampler()
        self._resource = _resource(version)
        self._scope = InstrumentationScope("quire", version)
        self._exporter = _CountingExporter(_exporter(protocol))
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MAX_QUEUED_SPANS,
            schedule_delay_millis=_SCHEDULE_DELAY_MS,
            max_export_batch_size=_BATCH_SPANS,
        )
        self._submitted = 0
        self._refused = 0
        self._closed = False

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        parent = parse_traceparent(traceparent, tracestate)
        context = set_span_in_context(NonRecordingSpan(parent)) if parent else None
        identity = identify(parent, sampled=False)
        result = self._sampler.should_sample(
            context, identity.trace_id, "", kind=SpanKind.SERVER, attributes=None
        )
        if result.decision is not Decision.RECORD_AND_SAMPLE:
            return identity
        return SpanIdentity(identity.trace_id, identity.span_id, sampled=True, parent=parent)

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        if not identity.sampled:
            return
        state = identity.parent.trace_state if identity.parent else TraceState()
        context = self._context(identity.trace_id, identity.span_id, state)
        self._submit(self._readable(server, context, identity.parent, SpanKind.SERVER))
        for child in children:
            own = self._context(identity.trace_id, new_span_id(), state)
            self._submit(self._readable(child, own, context, SpanKind.INTERNAL))

    def dropped_spans(self) -> int:
        lost = self._refused + self._exporter.failed
        return lost + (self._submitted - self._exporter.taken if self._closed else 0)

    def close(self, timeout_seconds: float = 2.0) -> None:
        if self._closed:
            return
        # The processor's own shutdown waits up to 30 s for an endpoint that is gone.
        flush = threading.Thread(target=self._processor.shutdown, daemon=True)
        flush.start()
        flush.join(timeout_seconds)
        if flush.is_alive():
            self._exporter.shutdown()
        self._closed = True

    def _submit(self, span: ReadableSpan) -> None:
        # The processor makes room by losing its oldest span without a word. Keeping count of what
        # is inside lets us refuse, and count, the one that does not fit.
        if self._closed or self._submitted - self._exporter.taken >= MAX_QUEUED_SPANS:
            self._refused += 1
            return
        self._submitted += 1
        self._processor.on_end(span)

    @staticmethod
    def _context(trace_id: int, span_id: int, state: TraceState) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags, trace_state=state)

    def _readable(
        self,
        span: FinishedSpan,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
    ) -> ReadableSpan:
        attributes = {
            attribute.name: value
            for attribute, value in span.attributes.items()
            if value is not None
        }
        status = Status(StatusCode.ERROR, span.error) if span.error else Status()
        return ReadableSpan(
            span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=status,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )
