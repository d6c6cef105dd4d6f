"""An OTLP trace receiver in the test's process, for both transports."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from google.rpc.error_details_pb2 import RetryInfo
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def value_of(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    return getattr(value, kind)


def attributes_of(span: Span) -> dict[str, Any]:
    return {attribute.key: value_of(attribute.value) for attribute in span.attributes}


class Receiver(TraceServiceServicer):
    """``spans`` in the order they came; ``resources`` of each batch.

    ``refusing``: what to answer to a batch with a span of this name. ``refused``: how many were.
    ``retry_after``: the whole seconds that such an answer says to wait.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        self.endpoint = ""
        self.refusing: dict[str, Any] = {}
        self.refused = 0
        self.retry_after: int | None = None

    def refusal_of(self, request: ExportTraceServiceRequest) -> Any:
        """Return None for a batch that is taken."""
        for batch in request.resource_spans:
            for span in batch.scope_spans[0].spans:
                if span.name in self.refusing:
                    self.refused += 1
                    return self.refusing[span.name]
        return None

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._arrived:
            for batch in request.resource_spans:
                self.resources.append(
                    {item.key: value_of(item.value) for item in batch.resource.attributes}
                )
                for scope in batch.scope_spans:
                    self.spans += scope.spans
            self._arrived.notify_all()

    def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        code = self.refusal_of(request)
        if code is not None:
            if self.retry_after is not None:
                info = RetryInfo()
                info.retry_delay.FromSeconds(self.retry_after)
                context.set_trailing_metadata(
                    (("google.rpc.retryinfo-bin", info.SerializeToString()),)
                )
            context.abort(code, "refused")
        self.take(request)
        return ExportTraceServiceResponse()

    def wait_for(self, count: int, seconds: float = 10) -> list[Span]:
        deadline = time.monotonic() + seconds
        with self._arrived:
            while len(self.spans) < count:
                if not self._arrived.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{len(self.spans)} of {count} spans within {seconds} s")
            return list(self.spans)


@contextmanager
def grpc_receiver(port: int = 0) -> Iterator[Receiver]:
    """``port``: 0 for any free one."""
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    receiver.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield receiver
    finally:
        server.stop(0).wait()


@contextmanager
def http_receiver(port: int = 0) -> Iterator[Receiver]:
    """``port``: 0 for any free one."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                status = receiver.refusal_of(request)
                if status is None:
                    receiver.take(request)
                self.send_response(status or 200)
                if status is not None and receiver.retry_after is not None:
                    self.send_header("retry-after", str(receiver.retry_after))
            else:
                self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
