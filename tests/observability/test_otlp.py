"""Spans as a collector receives them, or does not."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from observability import otlp
from observability.logging import configure
from tests.e2e.quire_server import until
from tests.observability.otlp_receiver import (
    Receiver,
    attributes_of,
    grpc_receiver,
    http_receiver,
)
from tests.observability.test_logging import Lines
from tests.observability.traced import CALLER, NOT_SAMPLED, SAMPLED, TRACE, finished, tracer

pytestmark = pytest.mark.integration


def otlp_tracer() -> tuple[otlp.OtlpTracer, list[float]]:
    """Return a tracer that exports, and the times of its attempts to do so."""
    exporting, attempts = tracer(), list[float]()
    assert isinstance(exporting, otlp.OtlpTracer)
    exporting.before_export(lambda: attempts.append(time.monotonic()))
    return exporting, attempts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@pytest.mark.parametrize(
    ("variable", "seconds", "warned"),
    [
        (None, 2.0, False),
        ("", 2.0, False),
        (" ", 2.0, False),
        ("250", 0.25, False),
        ("9" * 20, 3600.0, False),
        ("9" * 5000, 3600.0, False),
        ("0", 2.0, True),
        ("-5", 2.0, True),
        ("abc", 2.0, True),
        ("1.5", 2.0, True),
        ("2s", 2.0, True),
    ],
)
def test_spans_are_exported_every_two_seconds_or_as_often_as_the_variable_says(
    variable: str | None, seconds: float, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    with http_receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        monkeypatch.delenv("OTEL_BSP_SCHEDULE_DELAY", raising=False)
        if variable is not None:
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", variable)
        waited: list[float] = []
        wait = threading.Event.wait

        def wait_and_note(event: threading.Event, timeout: float | None = None) -> bool:
            if threading.current_thread().name == "OtelBatchSpanRecordProcessor":
                waited.append(timeout or 0.0)
            return wait(event, timeout)

        monkeypatch.setattr(threading.Event, "wait", wait_and_note)
        exporting = tracer()
        until(lambda: bool(waited), 30, "the exporting thread waits")
        exporting.close()
    assert waited[0] == seconds
    said = [line for line in stream.read_all(writer) if line["level"] == "warning"]
    assert [line["value"] for line in said] == ([variable] if warned else [])
    for line in said:
        assert line["event"] == (
            "OTEL_BSP_SCHEDULE_DELAY must be a whole number of milliseconds, at least 1; "
            "2000 is used"
        )


def test_many_spans_are_exported_before_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    requests, children = 250, [finished("decode")] * 40
    count = requests * (1 + len(children))
    assert count > otlp.MAX_QUEUED_SPANS
    with http_receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        exporting = tracer()
        for _ in range(requests):
            exporting.write(exporting.begin(None, None), finished(), children)
            time.sleep(1 / 120)  # the load, not a wait
        running.wait_for(count - otlp.MAX_QUEUED_SPANS // 2)
        exporting.close(10)
        running.wait_for(count)
    assert exporting.dropped_spans() == 0


def test_a_request_that_does_not_fit_the_queue_is_dropped_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Phases are of no use without the span that they belong to."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setattr(otlp, "MAX_QUEUED_SPANS", 24)
    monkeypatch.setattr(otlp, "_BATCH_ENTRIES", 8)
    with http_receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        exporting = tracer()
        fits = exporting.begin(None, None)
        exporting.write(fits, finished(), [finished("queue")] * 9)
        exporting.write(exporting.begin(None, None), finished(), [finished("decode")] * 19)
        exporting.close(10)
        running.wait_for(10)
        assert {span.trace_id.hex() for span in running.spans} == {fits.trace_id_hex}
    assert exporting.dropped_spans() == 20


def test_of_a_request_with_more_phases_than_fit_the_last_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "_MOST_CHILDREN", 30)
    with http_receiver() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        exporting = tracer()
        exporting.write(exporting.begin(None, None), finished(), iter([finished("decode")] * 45))
        exporting.close(10)
        running.wait_for(31)
        assert len(running.spans) == 31
    assert exporting.dropped_spans() == 15


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
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    exporting = tracer()
    identity = exporting.trust(exporting.begin(header, None))
    exporting.close()
    assert identity.sampled == sampled
    assert identity.traceresponse.endswith("-01" if sampled else "-00")


def test_a_caller_who_is_not_trusted_decides_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    exporting = tracer()
    lowest = f"00-{'0' * 31}1-{CALLER}-01"  # an id that every ratio takes
    taken = sum(exporting.begin(lowest, None).sampled for _ in range(1000))
    exporting.close()
    assert 400 < taken < 600


def test_the_ratio_can_be_changed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    exporting = tracer()
    assert exporting.sampling is not None
    assert not exporting.begin(None, None).sampled
    exporting.sampling.ratio = 1.0
    assert exporting.begin(None, None).sampled
    exporting.close()


def test_a_span_of_its_own_has_no_parent(receiver: Receiver) -> None:
    exporting = tracer()
    identity = exporting.begin(None, None)
    exporting.write_root(identity, finished("step"))
    exporting.close()
    (span,) = receiver.wait_for(1)
    assert (span.name, span.parent_span_id) == ("step", b"")
    assert span.trace_id.hex() == identity.trace_id_hex
    assert span.span_id.hex() == identity.span_id_hex


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
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
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


def test_a_dead_endpoint_is_one_log_line_a_minute(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The gRPC exporter's drops a line like the last one, which may be another test's.
    exporters = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")
    monkeypatch.setattr(exporters, "filters", [])
    stream = Lines()
    writer = configure(log_format="json", stream=stream)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # the HTTP exporter's: seconds
    exporting, attempts = otlp_tracer()
    exporting.write(exporting.begin(None, None), finished(), [])
    until(lambda: len(attempts) > 3, 60, "three exports to fail")
    exporting.close()
    said = [line for line in stream.read_all(writer) if "opentelemetry" in line.get("logger", "")]
    assert len(said) == 1
    assert said[0]["level"] in ("warning", "error")


def test_spans_wait_for_a_collector_that_is_started_later(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr(otlp, "_BATCH_ENTRIES", 2)
    exporting, attempts = otlp_tracer()
    for _ in range(6):
        exporting.write(exporting.begin(None, None), finished(), [])
    until(lambda: len(attempts) > 1, 60, "an export to fail")
    assert exporting.dropped_spans() == 0
    with (grpc_receiver if protocol == "grpc" else http_receiver)(port) as running:
        running.wait_for(6, 30)
        exporting.close()
        assert len(running.spans) == 6
    assert exporting.dropped_spans() == 0


def test_a_batch_that_never_gets_through_is_given_up_and_counted(
    receiver: Receiver, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "GIVE_UP_SECONDS", 1.5)
    receiver.refusing["chat m"] = grpc.StatusCode.UNAVAILABLE if protocol == "grpc" else 503
    exporting, attempts = otlp_tracer()
    exporting.write(exporting.begin(None, None), finished(), [])
    until(lambda: exporting.dropped_spans() == 1, 60, "the batch to be given up")
    exporting.close()
    assert receiver.refused == len(attempts) > 1


def test_a_collector_says_when_a_batch_may_be_sent_again(
    receiver: Receiver, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "GIVE_UP_SECONDS", 60)
    receiver.refusing["chat m"] = grpc.StatusCode.UNAVAILABLE if protocol == "grpc" else 503
    receiver.retry_after = 3  # our own first pause is one second
    exporting, attempts = otlp_tracer()
    exporting.write(exporting.begin(None, None), finished(), [])
    until(lambda: len(attempts) == 2, 60, "a second attempt")
    exporting.close()
    assert attempts[1] - attempts[0] >= 3


def test_no_batch_waits_longer_than_until_it_is_given_up(
    receiver: Receiver, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "GIVE_UP_SECONDS", 2.0)
    receiver.refusing["chat m"] = grpc.StatusCode.UNAVAILABLE if protocol == "grpc" else 503
    receiver.retry_after = 86_400
    exporting, attempts = otlp_tracer()
    exporting.write(exporting.begin(None, None), finished(), [])
    until(lambda: exporting.dropped_spans() == 1, 60, "the batch to be given up")
    exporting.close()
    assert len(attempts) == 2


def test_a_refused_batch_is_given_up_at_once_and_holds_up_no_other(
    receiver: Receiver, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_BATCH_ENTRIES", 1)
    receiver.refusing["poison"] = grpc.StatusCode.INVALID_ARGUMENT if protocol == "grpc" else 400
    exporting, attempts = otlp_tracer()
    for name in ("poison", "chat m"):
        exporting.write(exporting.begin(None, None), finished(name), [])
    receiver.wait_for(1)
    exporting.close()
    assert [span.name for span in receiver.spans] == ["chat m"]
    assert (receiver.refused, len(attempts)) == (1, 2)
    assert exporting.dropped_spans() == 1


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
