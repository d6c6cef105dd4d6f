"""Requests to the running product, as an OTLP collector sees them."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.quire_server import QuireServer, until
from tests.observability.otlp_receiver import Receiver, attributes_of, grpc_receiver
from tests.service.tiny_checkpoint import write_tiny_checkpoint

SMALL = ("--load-format", "dummy", "--threads", "1", "--kv-cache-memory", str(64 << 20))
CALLER_TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER_SPAN = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with grpc_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(collector: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    checkpoint = write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        with QuireServer(str(checkpoint), *SMALL) as running:
            yield running
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def chat(
    server: QuireServer, headers: dict[str, str], **changes: object
) -> http.client.HTTPResponse:
    """The response to a chat request, its body not read."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "canary-zanzibar"}],
        "max_tokens": 5,
        "ignore_eos": True,
        **changes,
    }
    connection.request(
        "POST",
        "/v1/chat/completions",
        json.dumps(body),
        {"content-type": "application/json", **headers},
    )
    return connection.getresponse()


def spans_of(collector: Receiver, trace: str, count: int) -> dict[str, Span]:
    def arrived() -> list[Span] | None:
        found = [span for span in collector.spans if span.trace_id.hex() == trace]
        return found if len(found) >= count else None

    found = until(arrived, 10, f"{count} spans of trace {trace}")
    assert len(found) == count
    return {span.name: span for span in found}


def test_a_request_joins_its_callers_trace_with_a_span_for_each_phase(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"})
    answer = json.loads(reply.read())
    assert reply.headers["x-trace-id"] == CALLER_TRACE
    spans = spans_of(collector, CALLER_TRACE, 4)
    request = spans["chat tiny"]
    assert request.parent_span_id.hex() == CALLER_SPAN
    assert reply.headers["traceresponse"] == f"00-{CALLER_TRACE}-{request.span_id.hex()}-01"
    assert request.kind == Span.SPAN_KIND_SERVER
    assert {spans[name].parent_span_id for name in ("queue", "prefill", "decode")} == {
        request.span_id
    }
    attributes = attributes_of(request)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "quire.outcome": "length",
        "quire.request_id": reply.headers["x-request-id"],
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    }
    assert {name: attributes.get(name) for name in expected} == expected
    order = [spans[name] for name in ("queue", "prefill", "decode")]
    moments = [
        time for span in order for time in (span.start_time_unix_nano, span.end_time_unix_nano)
    ]
    assert moments == sorted(moments)
    assert request.start_time_unix_nano <= moments[0]
    assert moments[-1] <= request.end_time_unix_nano


def test_a_request_whose_client_left_has_its_spans_too(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {}, stream=True, max_tokens=3000)
    reply.read(300)
    reply.close()
    spans = spans_of(collector, reply.headers["x-trace-id"], 4)
    attributes = attributes_of(spans["chat tiny"])
    assert attributes["quire.outcome"] == "client_gone"
    assert 0 < attributes["gen_ai.usage.output_tokens"] < 3000
    assert spans["chat tiny"].status.code == 0


def test_a_refused_request_is_one_span(server: QuireServer, collector: Receiver) -> None:
    reply = chat(server, {}, model="nobody")
    assert reply.status == 404
    (span,) = spans_of(collector, reply.headers["x-trace-id"], 1).values()
    assert attributes_of(span)["quire.outcome"] == "refused:not_found"


def test_probes_scrapes_and_content_are_in_no_span(
    server: QuireServer, collector: Receiver
) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        server.get(path)
    reply = chat(server, {})
    reply.read()
    spans_of(collector, reply.headers["x-trace-id"], 4)  # what came before has arrived, too
    routes = {attributes_of(span).get("http.route") for span in collector.spans}
    assert routes <= {None, "/v1/chat/completions"}
    assert not any(b"zanzibar" in span.SerializeToString() for span in collector.spans)


def test_the_metrics_page_links_latencies_to_traces(server: QuireServer) -> None:
    reply = chat(server, {})
    reply.read()
    _, page = server.get("/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert f'trace_id="{reply.headers["x-trace-id"]}"' in page.decode()
