"""Spans over OTLP, by the OpenTelemetry SDK. Import only where an endpoint is configured.

Spans are encoded when their request ends and given to the SDK's batch processor, which sends them
from a separate thread, and again for some minutes while the endpoint is away. The queue is bounded;
what does not fit, and what is given up, is counted and lost: telemetry never holds up a request or
the server's end.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from observability.logging import get_logger, printable
from observability.sampling import TraceSampling, sampling_of
from observability.span_encoding import encode_place, encode_request, encode_span
from observability.tracing import (
    FinishedSpan,
    SpanIdentity,
    identify,
    new_span_id,
    parse_traceparent,
)

MAX_QUEUED_SPANS = 8192
EXPORT_TIMEOUT_SECONDS = 5.0
# A batch that does not reach the endpoint is sent again after a pause, which doubles up to the
# longest, while later spans wait in the queue. One that the endpoint refuses is given up at once.
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
GIVE_UP_SECONDS = 300.0
# Time between exports. Each takes about 1.3 ms of CPU time, so not every second.
_SCHEDULE_DELAY_MS = 2000
# `threading.Event.wait` raises OverflowError for very long times.
_MAX_SCHEDULE_DELAY_MS = 3_600_000
_DELAY_VARIABLE = "OTEL_BSP_SCHEDULE_DELAY"
# The processor exports early once a batch of entries is queued, and counts entries, not spans. So
# an entry holds few enough spans that half of the bound always wakes it.
_BATCH_ENTRIES = 256
_SPANS_TOGETHER = MAX_QUEUED_SPANS // 2 // _BATCH_ENTRIES
# Of one request, so that it fits the queue.
_MOST_CHILDREN = MAX_QUEUED_SPANS // 2
# Kinds of spans, in OTLP's numbers.
_INTERNAL, _SERVER = 1, 2

_log = get_logger()


class _Exporter(Protocol):
    """``repeat_after``: of the last attempt, if it failed, the seconds before its batch may be sent
    again; 0 if the collector did not say, None if it must not be."""

    @property
    def repeat_after(self) -> float | None: ...

    def export(self, spans: Sequence[Any], /) -> SpanExportResult: ...

    def shutdown(self) -> None: ...


def _exporter(protocol: str, request_of: Callable[[Sequence[_EncodedSpans]], bytes]) -> _Exporter:
    """The endpoint, headers and certificates are read from OTEL_EXPORTER_OTLP_* by the exporter.

    Only the transport in use is imported: gRPC alone is 16 MiB.
    """
    timeout = None if _timeout_is_set() else EXPORT_TIMEOUT_SECONDS
    if protocol == "grpc":
        from observability.otlp_grpc import GrpcExporter

        return GrpcExporter(request_of, timeout)
    from observability.otlp_http import HttpExporter

    return HttpExporter(request_of, timeout)


def _timeout_is_set() -> bool:
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
        or os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT")
    )


def _schedule_delay_ms(environ: Mapping[str, str]) -> float:
    """Read OTEL_BSP_SCHEDULE_DELAY, of which the SDK would refuse or misread some values."""
    value = environ.get(_DELAY_VARIABLE, "").strip()
    if not value:
        return _SCHEDULE_DELAY_MS
    # As a float, since int() refuses thousands of digits.
    delay = float(value) if value.isascii() and value.isdecimal() else 0.0
    if not delay:
        _log.warning(
            f"{_DELAY_VARIABLE} must be a whole number of milliseconds, at least 1; "
            f"{_SCHEDULE_DELAY_MS} is used",
            value=printable(value),
        )
        return _SCHEDULE_DELAY_MS
    return min(delay, _MAX_SCHEDULE_DELAY_MS)


def _resource(version: str) -> Resource:
    named = os.environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    own = {SERVICE_VERSION: version} if named else {SERVICE_NAME: "quire", SERVICE_VERSION: version}
    return Resource.create(own)


class _EncodedSpans:
    """Some of a request's spans, in the queue."""

    __slots__ = ("count", "data")

    # The batch processor only takes what is sampled.
    context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data
        self.count = count


class _CountingExporter(SpanExporter):
    """Counts the spans that it was given, and those that were lost on the way out. ``before``:
    called before each attempt."""

    def __init__(self, exporter: _Exporter) -> None:
        self._exporter = exporter
        self.before: Callable[[], None] = lambda: None
        self.taken = 0
        self.failed = 0
        self._closing = threading.Event()

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """``spans``: encoded ones."""
        count = sum(each.count for each in spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._send(spans)
        finally:
            self.taken += count
            if result is not SpanExportResult.SUCCESS:
                self.failed += count
        return result

    def _send(self, spans: Sequence[Any]) -> SpanExportResult:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while True:
            is_last = self._closing.is_set() or time.monotonic() >= deadline
            self.before()
            result = self._exporter.export(spans)
            wanted = self._exporter.repeat_after
            if is_last or result is SpanExportResult.SUCCESS or wanted is None:
                return result
            left = max(0.0, deadline - time.monotonic())
            self._closing.wait(max(pause, min(wanted, left)))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def hurry(self) -> None:
        """Send each batch only once from now on."""
        self._closing.set()

    def shutdown(self) -> None:
        self._exporter.shutdown()


class OtlpTracer:
    """A ``Tracer`` (see ``observability.tracing``) that samples and exports."""

    def __init__(self, protocol: str, *, version: str) -> None:
        self._sampling = sampling_of(os.environ)
        self._resource, self._scope = _encoded_origin(
            _resource(version), InstrumentationScope("quire", version)
        )
        self._exporter = _CountingExporter(_exporter(protocol, self._request_of))
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MAX_QUEUED_SPANS,
            schedule_delay_millis=_schedule_delay_ms(os.environ),
            max_export_batch_size=_BATCH_ENTRIES,
        )
        self._submitted = 0
        self._refused = 0
        self._closed = False

    @property
    def sampling(self) -> TraceSampling:
        return self._sampling

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        parent = parse_traceparent(traceparent, tracestate)
        identity = identify(parent, sampled=False)
        # Not by a trace id that the caller has chosen.
        drawn = identity.trace_id if parent is None else identity.span_id
        return _as_sampled(identity) if self._sampling.takes(drawn) else identity

    def trust(self, identity: SpanIdentity) -> SpanIdentity:
        parent = identity.parent
        if parent is None:
            return identity
        if self._sampling.takes(identity.trace_id, parent.trace_flags.sampled):
            return _as_sampled(identity)
        return SpanIdentity(identity.trace_id, identity.span_id, False, parent)

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        parent = identity.parent
        trace_id = identity.trace_id.to_bytes(16, "big")
        own_id = identity.span_id.to_bytes(8, "big")
        state = parent.trace_state.to_header() if parent else ""
        root = encode_place(
            trace_id=trace_id,
            parent_id=parent.span_id.to_bytes(8, "big") if parent else b"",
            parent_is_remote=parent is not None and parent.is_remote,
            trace_state=state,
        )
        below = encode_place(
            trace_id=trace_id, parent_id=own_id, parent_is_remote=False, trace_state=state
        )
        rest = iter(children)
        encoded = [encode_span(server, kind=_SERVER, place=root, span_id=own_id)]
        encoded += [
            encode_span(
                child, kind=_INTERNAL, place=below, span_id=new_span_id().to_bytes(8, "big")
            )
            for child in itertools.islice(rest, _MOST_CHILDREN)
        ]
        self._refused += sum(1 for _ in rest)
        self._submit(encoded)

    def write_root(self, identity: SpanIdentity, span: FinishedSpan) -> None:
        place = encode_place(
            trace_id=identity.trace_id.to_bytes(16, "big"),
            parent_id=b"",
            parent_is_remote=False,
            trace_state="",
        )
        span_id = identity.span_id.to_bytes(8, "big")
        self._submit([encode_span(span, kind=_INTERNAL, place=place, span_id=span_id)])

    def dropped_spans(self) -> int:
        lost = self._refused + self._exporter.failed
        return lost + (self._submitted - self._exporter.taken if self._closed else 0)

    def before_export(self, call: Callable[[], None]) -> None:
        """Call this before each attempt to export, in the exporting thread."""
        self._exporter.before = call

    def flush(self) -> None:
        """Send what is queued, waiting for the endpoint."""
        self._processor.force_flush()

    def close(self, timeout_seconds: float = 2.0) -> None:
        if self._closed:
            return
        self._exporter.hurry()
        # The processor's own shutdown waits up to 30 s for an endpoint that is gone.
        flush = threading.Thread(target=self._processor.shutdown, daemon=True)
        flush.start()
        flush.join(timeout_seconds)
        if flush.is_alive():
            self._exporter.shutdown()
        self._closed = True

    def _submit(self, spans: list[bytes]) -> None:
        # The processor makes room by losing its oldest entry without a word. Keeping count of what
        # is inside lets us refuse, and count, what does not fit: all spans of a request, as its
        # phases say little without its first span.
        count = len(spans)
        if self._closed or self._submitted - self._exporter.taken + count > MAX_QUEUED_SPANS:
            self._refused += count
            return
        self._submitted += count
        for start in range(0, count, _SPANS_TOGETHER):
            together = spans[start : start + _SPANS_TOGETHER]
            queued: Any = _EncodedSpans(b"".join(together), len(together))
            self._processor.on_end(queued)

    def _request_of(self, batch: Sequence[_EncodedSpans]) -> bytes:
        return encode_request(self._resource, self._scope, [each.data for each in batch])


def _as_sampled(identity: SpanIdentity) -> SpanIdentity:
    return SpanIdentity(identity.trace_id, identity.span_id, True, identity.parent)


def _encoded_origin(resource: Resource, scope: InstrumentationScope) -> tuple[bytes, bytes]:
    """Return what all spans have in common, as the SDK encodes it."""
    span = ReadableSpan(
        "", context=_EncodedSpans.context, resource=resource, instrumentation_scope=scope
    )
    (encoded,) = encode_spans([span]).resource_spans
    return encoded.resource.SerializeToString(), encoded.scope_spans[0].scope.SerializeToString()
