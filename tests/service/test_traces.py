"""Requests to the running product, as an OTLP collector sees them."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.quire_server import QuireServer, command_of, descendants, until
from tests.observability.otlp_receiver import Receiver, attributes_of, grpc_receiver
from tests.service.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.one_process

# Room for one sequence of the model's full length.
SMALL = ("--load-format", "dummy", "--threads", "1", "--num-kv-blocks", "260")
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
    server: QuireServer,
    headers: dict[str, str],
    path: str = "/v1/chat/completions",
    **changes: object,
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
        path,
        json.dumps(body),
        {"content-type": "application/json", **headers},
    )
    return connection.getresponse()


def trace_of(collector: Receiver, trace: str) -> tuple[Span, list[Span]]:
    """The server span and, in order of time, its phases, which arrive together. Not those of
    waiting for the client: some of these read slowly."""

    def arrived() -> Span | None:
        spans = (span for span in collector.spans if span.trace_id.hex() == trace)
        return next((span for span in spans if span.kind == Span.SPAN_KIND_SERVER), None)

    server = until(arrived, 10, f"the server span of trace {trace}")
    children = (span for span in collector.spans if span.parent_span_id == server.span_id)
    found = [span for span in children if span.name != "flush"]
    return server, sorted(found, key=lambda span: span.start_time_unix_nano)


BEFORE = ["receive", "admit", "render", "tokenize", "admit"]


def without_pauses(phases: list[Span]) -> list[str]:
    """The phases' names. On a busy machine a long prompt waits between render and tokenize; that
    time counts as admit."""
    names = [span.name for span in phases]
    pauses = [at for at in range(1, len(names)) if names[at - 1 : at + 1] == ["render", "admit"]]
    return [name for at, name in enumerate(names) if at not in pauses]


def is_chain(server: Span, phases: list[Span]) -> bool:
    """True if the phases follow one another within the request."""
    moments = [
        time for span in phases for time in (span.start_time_unix_nano, span.end_time_unix_nano)
    ]
    whole = [server.start_time_unix_nano, *moments, server.end_time_unix_nano]
    return whole == sorted(whole)


def test_a_request_joins_its_callers_trace_with_a_span_for_each_phase(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"})
    answer = json.loads(reply.read())
    assert reply.headers["x-trace-id"] == CALLER_TRACE
    request, phases = trace_of(collector, CALLER_TRACE)
    assert request.name == "chat tiny"
    assert request.parent_span_id.hex() == CALLER_SPAN
    assert reply.headers["traceresponse"] == f"00-{CALLER_TRACE}-{request.span_id.hex()}-01"
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
    assert without_pauses(phases) == [*BEFORE, "queue", "prefill", "decode"]
    assert is_chain(request, phases)


def test_a_request_whose_client_left_has_its_spans_too(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {}, stream=True, max_tokens=3000)
    reply.read(300)
    reply.close()
    request, phases = trace_of(collector, reply.headers["x-trace-id"])
    attributes = attributes_of(request)
    assert attributes["quire.outcome"] == "client_gone"
    assert 0 < attributes["gen_ai.usage.output_tokens"] < 3000
    assert request.status.code == 0
    assert [span.name for span in phases][-3:] == ["queue", "prefill", "decode"]


def test_a_refused_request_has_the_phases_that_it_reached(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {}, model="nobody")
    assert reply.status == 404
    request, phases = trace_of(collector, reply.headers["x-trace-id"])
    attributes = attributes_of(request)
    assert attributes["quire.outcome"] == attributes["error.type"] == "refused:not_found"
    assert attributes["quire.error.code"] == "model_not_found"
    assert attributes["quire.error.field"] == "model"
    assert "gen_ai.request.model" not in attributes
    assert [span.name for span in phases] == ["receive", "admit"]
    reply = chat(server, {}, messages=[{"role": "user", "content": "word " * 3000}])
    assert reply.status == 400
    request, phases = trace_of(collector, reply.headers["x-trace-id"])
    assert attributes_of(request)["gen_ai.usage.input_tokens"] > 3000
    assert without_pauses(phases) == BEFORE
    assert is_chain(request, phases)


def test_what_no_route_takes_is_one_span(server: QuireServer, collector: Receiver) -> None:
    reply = chat(server, {}, "/v1/v1/chat/completions")
    assert reply.status == 404
    request, phases = trace_of(collector, reply.headers["x-trace-id"])
    assert (request.name, phases) == ("none", [])
    attributes = attributes_of(request)
    assert attributes["quire.outcome"] == "refused:not_found"
    assert "http.route" not in attributes


def test_preempted_requests_say_so(server: QuireServer, collector: Receiver) -> None:
    """Together they need more KV blocks than there are."""
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(chat, server, {}, max_tokens=1300) for _ in range(4)]
        replies = [each.result() for each in asked]
        for reply in replies:
            assert json.loads(reply.read())["usage"]["completion_tokens"] == 1300
    preemptions = 0
    for reply in replies:
        request, phases = trace_of(collector, reply.headers["x-trace-id"])
        assert [span.name for span in phases][-3:] == ["queue", "prefill", "decode"]
        own = attributes_of(request)["quire.preemptions"]
        assert attributes_of(phases[-1])["quire.preemptions"] == own
        preemptions += own
    assert preemptions > 0


def test_a_request_that_was_handed_over_is_one_trace(
    server: QuireServer, collector: Receiver
) -> None:
    reply = chat(server, {}, stream=True, max_tokens=3000)
    reply.read(300)
    assert server.process is not None
    (engine,) = (pid for pid in descendants(server.process.pid) if b"engine" in command_of(pid))
    os.kill(engine, signal.SIGKILL)
    assert reply.read().endswith(b"data: [DONE]\n\n")
    request, phases = trace_of(collector, reply.headers["x-trace-id"])
    assert attributes_of(request)["quire.handovers"] == 1
    assert [span.name for span in phases][-3:] == ["queue", "prefill", "decode"]
    assert is_chain(request, phases)


def test_probes_scrapes_and_content_are_in_no_span(
    server: QuireServer, collector: Receiver
) -> None:
    for path in ("/health/live", "/health/ready", "/metrics"):
        server.get(path)
    reply = chat(server, {})
    reply.read()
    trace_of(collector, reply.headers["x-trace-id"])  # what came before has arrived, too
    routes = {attributes_of(span).get("http.route") for span in collector.spans}
    assert routes <= {None, "/v1/chat/completions"}
    assert not any("health" in span.name or "metrics" in span.name for span in collector.spans)
    assert not any(b"zanzibar" in span.SerializeToString() for span in collector.spans)


def test_the_metrics_page_links_latencies_to_traces(server: QuireServer) -> None:
    reply = chat(server, {})
    reply.read()
    _, page = server.get("/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert f'trace_id="{reply.headers["x-trace-id"]}"' in page.decode()
