"""Who a request is in a trace, and spans as a collector receives them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from observability import otlp, schema
from observability.tracing import FinishedSpan, IdentityTracer, Tracer, make_tracer
from tests.observability.otlp_receiver import (
    Receiver,
    attributes_of,
    grpc_receiver,
    http_receiver,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
NOT_SAMPLED = f"00-{TRACE}-{CALLER}-00"


def finished(name: str = "chat m", error: str | None = None) -> FinishedSpan:
    return FinishedSpan(
        schema.SPAN_REQUEST,
        name,
        1_000_000_000,
        3_000_000_000,
        {
            schema.ATTR_REQUEST_MODEL: "m",
            schema.ATTR_OUTPUT_TOKENS: 7,
            schema.ATTR_STREAM: True,
            schema.ATTR_TOP_P: 0.5,
            schema.ATTR_FINISH_REASONS: ("stop", "length"),
            schema.ATTR_RESPONSE_ID: None,
        },
        error,
    )


@pytest.fixture(autouse=True)
def _no_otel_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "PROTOCOL", "TRACES_ENDPOINT", "TRACES_PROTOCOL", "TIMEOUT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def receiver(protocol: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    start = grpc_receiver if protocol == "grpc" else http_receiver
    with start() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        yield running


def tracer() -> Tracer:
    return make_tracer(os.environ, version="1.2.3")


# --- identity ---------------------------------------------------------------------------------


def test_a_request_without_context_gets_ids_of_its_own() -> None:
    one, other = (IdentityTracer().begin(None, None) for _ in range(2))
    assert len({one.trace_id, other.trace_id}) == len({one.span_id, other.span_id}) == 2
    assert (len(one.trace_id_hex), len(one.span_id_hex)) == (32, 16)
    assert not one.sampled


def test_a_callers_context_is_joined() -> None:
    identity = IdentityTracer().begin(SAMPLED, "vendor=opaque")
    assert identity.trace_id_hex == TRACE
    assert identity.parent is not None
    assert f"{identity.parent.span_id:016x}" == CALLER
    assert identity.parent.trace_state.get("vendor") == "opaque"
    assert identity.span_id_hex != CALLER
    assert identity.traceresponse == f"00-{TRACE}-{identity.span_id_hex}-00"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "rubbish",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01-extra",
        "\0" * 500,
    ],
)
def test_an_unsound_context_starts_a_new_trace(header: str) -> None:
    identity = IdentityTracer().begin(header, "a" * 10_000)
    assert identity.parent is None
    assert identity.trace_id_hex != TRACE


def test_the_sdk_is_not_even_imported_while_no_endpoint_is_set() -> None:
    script = (
        "import sys; from observability.tracing import make_tracer;"
        "make_tracer({}, version='1').begin(None, None);"
        "print([m for m in sys.modules if m.startswith(('opentelemetry.sdk',"
        " 'opentelemetry.exporter', 'grpc', 'google.protobuf'))])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
def test_the_standard_switches_turn_export_off(environ: dict[str, str]) -> None:
    assert isinstance(make_tracer(environ, version="1"), IdentityTracer)


def test_an_unknown_protocol_or_sampler_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL"):
        make_tracer({**environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"}, version="1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER"):
        make_tracer(environ, version="1")


# --- export -----------------------------------------------------------------------------------


def test_spans_arrive_with_their_ids_parents_times_and_attributes(receiver: Receiver) -> None:
    exporting = tracer()
    identity = exporting.begin(SAMPLED, "vendor=opaque")
    exporting.write(identity, finished(), [finished("queue"), finished("decode")])
    exporting.close()
    server, queue, decode = receiver.wait_for(3)
    assert [span.name for span in (server, queue, decode)] == ["chat m", "queue", "decode"]
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    assert server.span_id.hex() == identity.span_id_hex
    assert server.parent_span_id.hex() == CALLER
    assert queue.parent_span_id == decode.parent_span_id == server.span_id
    assert len({server.span_id, queue.span_id, decode.span_id}) == 3
    assert server.trace_state == "vendor=opaque"
    assert (server.kind, queue.kind) == (server.SPAN_KIND_SERVER, server.SPAN_KIND_INTERNAL)
    assert (server.start_time_unix_nano, server.end_time_unix_nano) == (10**9, 3 * 10**9)
    assert attributes_of(server) == {
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.request.stream": True,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.response.finish_reasons": ["stop", "length"],
    }
    assert server.status.code == server.status.STATUS_CODE_UNSET
    assert receiver.resources[0]["service.name"] == "quire"
    assert receiver.resources[0]["service.version"] == "1.2.3"
    assert exporting.dropped_spans() == 0


def test_a_failed_request_is_an_error_span(receiver: Receiver) -> None:
    exporting = tracer()
    exporting.write(exporting.begin(None, None), finished(error="error:engine"), [])
    exporting.close()
    (span,) = receiver.wait_for(1)
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert span.status.message == "error:engine"
    assert span.parent_span_id == b""


@pytest.mark.parametrize(
    ("sampler", "argument", "header", "sampled"),
    [
        ("", "", None, True),
        ("", "", NOT_SAMPLED, False),
        ("always_on", "", NOT_SAMPLED, True),
        ("always_off", "", SAMPLED, False),
        ("parentbased_traceidratio", "0", None, False),
        ("parentbased_traceidratio", "0", SAMPLED, True),
        ("traceidratio", "1", NOT_SAMPLED, True),
    ],
)
def test_sampling_follows_the_standard_variables(
    sampler: str,
    argument: str,
    header: str | None,
    sampled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with http_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        if sampler:
            monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
            monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
        exporting = tracer()
        identity = exporting.begin(header, None)
        exporting.write(identity, finished(), [])
        exporting.close()
        assert identity.sampled == sampled
        assert identity.traceresponse.endswith("-01" if sampled else "-00")
        assert len(receiver.spans) == int(sampled)


def test_a_service_name_from_the_environment_wins(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "llm-front")
    exporting = tracer()
    exporting.write(exporting.begin(None, None), finished(), [])
    exporting.close()
    receiver.wait_for(1)
    assert receiver.resources[0]["service.name"] == "llm-front"


def test_a_dead_endpoint_slows_neither_requests_nor_the_end_and_is_counted(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    exporting = tracer()
    begin = time.monotonic()
    for _ in range(100):
        exporting.write(exporting.begin(None, None), finished(), [finished("queue")])
    assert time.monotonic() - begin < 5  # the exporter itself tries again for ten seconds
    begin = time.monotonic()
    exporting.close()
    assert time.monotonic() - begin < 8
    assert exporting.dropped_spans() == 200


def test_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_QUEUED_SPANS", 512)
    with socket.socket() as silent:  # accepts into its backlog and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        exporting = tracer()
        for _ in range(600):
            exporting.write(exporting.begin(None, None), finished(), [])
        assert exporting.dropped_spans() == 600 - 512
        exporting.close(0.2)
        assert exporting.dropped_spans() == 600
