"""Who a request is in a trace, and when its spans are exported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from observability.tracing import IdentityTracer, make_tracer
from tests.observability.traced import CALLER, SAMPLED, TRACE


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
