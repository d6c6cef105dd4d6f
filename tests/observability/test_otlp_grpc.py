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


def retry_details() -> bytes:
    status = Status(code=StatusCode.RESOURCE_EXHAUSTED.value[0])
    status.details.add().Pack(RetryInfo())
    encoded: bytes = status.SerializeToString()
    return encoded


@pytest.mark.parametrize(
    ("code", "metadata", "may_repeat"),
    [
        (StatusCode.UNAVAILABLE, (), True),
        (StatusCode.DEADLINE_EXCEEDED, (), True),
        (StatusCode.CANCELLED, (), True),
        (StatusCode.ABORTED, (), True),
        (StatusCode.OUT_OF_RANGE, (), True),
        (StatusCode.DATA_LOSS, (), True),
        (StatusCode.RESOURCE_EXHAUSTED, (), False),
        (StatusCode.RESOURCE_EXHAUSTED, (("grpc-status-details-bin", retry_details()),), True),
        (StatusCode.RESOURCE_EXHAUSTED, (("grpc-status-details-bin", b"\xff"),), False),
        (
            StatusCode.RESOURCE_EXHAUSTED,
            (("google.rpc.retryinfo-bin", RetryInfo().SerializeToString()),),
            True,
        ),
        (StatusCode.INVALID_ARGUMENT, (), False),
        (StatusCode.UNAUTHENTICATED, (), False),
        (StatusCode.UNIMPLEMENTED, (), False),
        (StatusCode.INTERNAL, (), False),
    ],
)
def test_only_codes_that_otlp_allows_to_repeat_are_repeated_and_not_by_the_exporter(
    code: StatusCode,
    metadata: tuple[tuple[str, bytes], ...],
    may_repeat: bool,
    refusing: Refusing,
) -> None:
    refusing.code, refusing.metadata = code, metadata
    exporting = GrpcExporter(lambda spans: b"", 5.0)
    assert exporting.export([]) is SpanExportResult.FAILURE
    exporting.shutdown()
    assert refusing.calls == 1
    assert exporting.may_repeat == may_repeat
