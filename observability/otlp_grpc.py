"""The SDK's OTLP exporter over gRPC: one call per attempt, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc import RpcError, StatusCode
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

# OTLP forbids repeating a batch after any other code, except RESOURCE_EXHAUSTED with a RetryInfo.
REPEATABLE_CODES = frozenset(
    {
        StatusCode.CANCELLED,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.ABORTED,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNAVAILABLE,
        StatusCode.DATA_LOSS,
    }
)
# Without this the exporter also repeats calls, between our attempts.
_NO_ERROR = (StatusCode.OK,)


class GrpcExporter(SpanExporter):
    """``repeat_after``: of the last attempt, if it failed, the seconds before its batch may be sent
    again; 0 if the collector did not say, None if it must not be."""

    def __init__(
        self, request_of: Callable[[Sequence[Any]], bytes], timeout_seconds: float | None
    ) -> None:
        self.repeat_after: float | None = None
        module: Any = trace_exporter
        # The exporter translates a batch by this function of its module; ours are encoded already.
        module.encode_spans = lambda spans: ExportTraceServiceRequest.FromString(request_of(spans))
        # It makes its calls by this class of its module, and does not return their status.
        module.TraceServiceStub = lambda channel: _Stub(channel, self._note)
        self._exporter = module.OTLPSpanExporter(
            timeout=timeout_seconds, retryable_error_codes=_NO_ERROR
        )

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self.repeat_after = None
        result: SpanExportResult = self._exporter.export(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def _note(self, error: Any) -> None:
        code = error.code()
        if code in REPEATABLE_CODES or code is StatusCode.RESOURCE_EXHAUSTED:
            delay = _retry_delay(error.trailing_metadata())
            self.repeat_after = 0.0 if delay is None and code in REPEATABLE_CODES else delay


class _Stub:
    """The generated client, with errors noted."""

    def __init__(self, channel: Any, note: Callable[[Any], None]) -> None:
        client: Any = TraceServiceStub
        self._stub = client(channel)
        self._note = note

    def Export(self, **call: Any) -> Any:  # noqa: N802
        try:
            return self._stub.Export(**call)
        except RpcError as error:
            self._note(error)
            raise


def _retry_delay(metadata: Any) -> float | None:
    """The seconds of a RetryInfo, or None if there is none that can be read."""
    found = dict(metadata or ())
    info = RetryInfo()
    try:
        if (alone := found.get("google.rpc.retryinfo-bin")) is not None:
            return _seconds(RetryInfo.FromString(alone))
        status = Status.FromString(found.get("grpc-status-details-bin", b""))
        if any(detail.Unpack(info) for detail in status.details):
            return _seconds(info)
    except DecodeError:
        pass
    return None


def _seconds(info: Any) -> float:
    seconds: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return max(0.0, seconds)
