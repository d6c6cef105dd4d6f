"""Answers of a collector over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.sdk.trace.export import SpanExportResult

from observability.otlp_grpc import GrpcExporter

pytestmark = pytest.mark.integration


class Refusing(TraceServiceServicer):
    def __init__(self) -> None:
        self.code = StatusCode.INTERNAL
        self.metadata: tuple[tuple[str, bytes], ...] = ()
        self.calls = 0

    def Export(self, request: Any, context: Any) -> None:  # noqa: N802
        self.calls += 1
        context.set_trailing_metadata(self.metadata)
        context.abort(self.code, "refused")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    servicer = Refusing()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    yield servicer
    server.stop(0).wait()


def retry_info(seconds: float = 0) -> RetryInfo:
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(int(seconds * 1e9))
    return info


def retry_details(seconds: float = 0) -> bytes:
    status = Status(code=StatusCode.RESOURCE_EXHAUSTED.value[0])
    status.details.add().Pack(retry_info(seconds))
    encoded: bytes = status.SerializeToString()
    return encoded


@pytest.mark.parametrize(
    ("code", "metadata", "repeat_after"),
    [
        (StatusCode.UNAVAILABLE, (), 0),
        (StatusCode.UNAVAILABLE, (("grpc-status-details-bin", retry_details(7.5)),), 7.5),
        (StatusCode.UNAVAILABLE, (("grpc-status-details-bin", retry_details(-5)),), 0),
        (StatusCode.UNAVAILABLE, (("grpc-status-details-bin", b"\xff"),), 0),
        (StatusCode.DEADLINE_EXCEEDED, (), 0),
        (StatusCode.CANCELLED, (), 0),
        (StatusCode.ABORTED, (), 0),
        (StatusCode.OUT_OF_RANGE, (), 0),
        (StatusCode.DATA_LOSS, (), 0),
        (StatusCode.RESOURCE_EXHAUSTED, (), None),
        (StatusCode.RESOURCE_EXHAUSTED, (("grpc-status-details-bin", retry_details()),), 0),
        (StatusCode.RESOURCE_EXHAUSTED, (("grpc-status-details-bin", b"\xff"),), None),
        (
            StatusCode.RESOURCE_EXHAUSTED,
            (("google.rpc.retryinfo-bin", retry_info(30).SerializeToString()),),
            30,
        ),
        (StatusCode.INVALID_ARGUMENT, (), None),
        (StatusCode.UNAUTHENTICATED, (), None),
        (StatusCode.UNIMPLEMENTED, (), None),
        (StatusCode.INTERNAL, (), None),
    ],
)
def test_only_codes_that_otlp_allows_to_repeat_are_repeated_and_not_by_the_exporter(
    code: StatusCode,
    metadata: tuple[tuple[str, bytes], ...],
    repeat_after: float | None,
    refusing: Refusing,
) -> None:
    refusing.code, refusing.metadata = code, metadata
    exporting = GrpcExporter(lambda spans: b"", 5.0)
    assert exporting.export([]) is SpanExportResult.FAILURE
    exporting.shutdown()
    assert refusing.calls == 1
    assert exporting.repeat_after == repeat_after
