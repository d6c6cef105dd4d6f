"""What a request, and all messages together, do to metrics, log and trace."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from engine.messages import (
    EngineCounters,
    Heartbeat,
    StepPhase,
)
from engine.queueing import Refusal, RefusalReason, ServiceClass, WaitingReason
from observability import catalogue, outcomes
from observability.logging import configure
from observability.metric_kinds import Metric, Scope
from observability.sampling import TraceSampling
from observability.tracing import FinishedSpan, IdentityTracer, SpanContext, SpanIdentity
from service.engine.link import EngineState, LinkPhase
from service.engine.silence import EngineFigures, EngineStatus
from service.engine.waits import ClassWait
from service.telemetry.record import Flush
from service.telemetry.requests import Telemetry
from tests.service.request_records import answered, sequence, started
from tests.service.telemetry.watched import READY, stats, step, value


@pytest.fixture
def log() -> Iterator[Any]:
    stream = io.BytesIO()
    writer = configure(log_format="json", stream=stream)

    def lines() -> list[dict[str, Any]]:
        writer.close()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    structlog.reset_defaults()


def every_number_of_the_engine(telemetry: Telemetry) -> dict[str, int]:
    """Messages, and figures read for each page, that move each of its metrics. Returns its totals
    by then."""
    waits = dict.fromkeys(ServiceClass, ClassWait(1, 2.0))
    figures = EngineFigures(EngineStatus.OK, 1.0, waits, 3.0, 4.0, tuple(EngineStatus))
    telemetry.read_engine(lambda: figures)
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
    totals = dict.fromkeys(msgspec.structs.asdict(EngineCounters()), 3)
    for moment, phase in enumerate(StepPhase, start=1):
        telemetry.on_step(step(moment, [1], phase=phase, stats=stats(**totals)))
    refused = [sequence(handle=9, refusal=Refusal(reason)) for reason in RefusalReason]
    telemetry.on_step(step(9.0, [], phase=None, stats=stats(**totals), finished=refused))
    return totals


def test_no_series_with_a_model_stands_at_zero_for_ever(telemetry: Telemetry) -> None:
    """Whichever name is requested, each series that exists for it moves; those of the engine exist
    under the first name only."""
    moved: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    totals = every_number_of_the_engine(telemetry)
    handed_over = [sequence(handovers=1)]
    for route in outcomes.ROUTES:
        for outcome in outcomes.OUTCOMES:
            for model in ("m", "alias", "somebody else's"):
                record = answered(
                    telemetry,
                    route=route,
                    outcome=outcome.name,
                    model=model,
                    sequences=handed_over,
                )
                telemetry.first_token(record)
                telemetry.request_finished(record)
    series = set()
    for reason in WaitingReason:
        gauges = {"running": 1, "waiting": 1, "kv_blocks_cached": 1, "kv_blocks_active": 1}
        telemetry.on_step(Heartbeat(stats(waiting_reason=reason, **gauges, **totals)))
        page = telemetry.exposition(None)[0].decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                counts = not sample.name.endswith(("_bucket", "_sum"))
                if "model" in sample.labels and counts:
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    series.add(key)
                    if sample.value:
                        moved.add(key)
    assert series - moved == set()
    for metric in catalogue.METRICS:
        names = {
            dict(labels)["model"]
            for name, labels in moved
            if name.removesuffix("_count") == metric.name
        }
        assert (
            names
            == {
                Scope.PROCESS: set(),
                Scope.ENGINE: {"m"},
                Scope.MODEL: {"m", "alias"},
                Scope.REQUEST: {"m", "alias", catalogue.OTHER_MODEL},
            }[metric.scope]
        ), metric.name


# --- requests ---------------------------------------------------------------------------------


def test_a_request_is_in_progress_until_it_ends(telemetry: Telemetry) -> None:
    progress = telemetry.metrics[catalogue.REQUESTS_IN_PROGRESS].labels("chat_completions")
    record = answered(telemetry)
    assert progress.value == 1
    telemetry.request_finished(record)
    assert progress.value == 0


def test_a_finished_request_is_counted_once_with_its_outcome(telemetry: Telemetry) -> None:
    telemetry.request_finished(answered(telemetry))
    counted = {
        (sample.labels["model"], sample.labels["route"], sample.labels["outcome"]): sample.value
        for sample in telemetry.metrics.samples()
        if sample.name == catalogue.REQUESTS.name and sample.value
    }
    assert counted == {("m", "chat_completions", "stop"): 1}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (catalogue.E2E_SECONDS, 0.100),
        (catalogue.REQUEST_PROMPT_TOKENS, 20),
        (catalogue.REQUEST_GENERATED_TOKENS, 11),
        (catalogue.REQUEST_PREEMPTIONS, 0),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_time_and_sizes_are_observed_from_the_record(
    telemetry: Telemetry, metric: Metric, expected: float
) -> None:
    telemetry.request_finished(answered(telemetry))
    assert value(telemetry, metric, "_count") == 1
    assert value(telemetry, metric, "_sum") == pytest.approx(expected)


PHASE_MS = {
    "receive": 1,
    "render": 0.5,
    "tokenize": 2.5,
    "admit": 2,
    "queue": 4,
    "prefill": 30,
    "decode": 50,
    "flush": 5,
}


def test_each_phase_is_observed_once(telemetry: Telemetry) -> None:
    telemetry.request_finished(answered(telemetry))
    assert tuple(PHASE_MS) == catalogue.PHASE_SECONDS.labels[1].values
    for phase, milliseconds in PHASE_MS.items():
        observed = {
            suffix: value(telemetry, catalogue.PHASE_SECONDS, suffix, phase=phase)
            for suffix in ("_count", "_sum")
        }
        assert observed == {"_count": 1, "_sum": pytest.approx(milliseconds / 1e3)}


def test_a_phase_that_was_never_reached_is_not_observed(telemetry: Telemetry, log: Any) -> None:
    refused = answered(
        telemetry,
        outcome="refused:overloaded",
        sequences=[],
        intervals=[],
        flush=Flush(),
        prepared_time=None,
    )
    telemetry.request_finished(refused)
    for phase in PHASE_MS:
        assert value(telemetry, catalogue.PHASE_SECONDS, "_count", phase=phase) == 0
    (line,) = log()
    assert {line[f"{phase}_ms"] for phase in PHASE_MS} == {None}
    assert line["other_ms"] == line["total_ms"]


def test_time_to_first_token_counts_from_receipt_and_at_once(telemetry: Telemetry) -> None:
    record = answered(telemetry)
    telemetry.first_token(record)
    assert value(telemetry, catalogue.TIME_TO_FIRST_TOKEN, "_sum") == pytest.approx(0.041)
    telemetry.request_finished(record)
    assert value(telemetry, catalogue.TIME_TO_FIRST_TOKEN, "_count") == 1


def test_an_aborted_request_is_counted_with_what_it_cost(telemetry: Telemetry, log: Any) -> None:
    record = answered(telemetry, outcome="client_gone", output_tokens=3)
    telemetry.request_finished(record)
    labels = {"route": "chat_completions", "outcome": "client_gone"}
    assert value(telemetry, catalogue.REQUESTS, **labels) == 1
    assert value(telemetry, catalogue.REQUEST_GENERATED_TOKENS, "_sum") == 3
    (line,) = log()
    assert (line["outcome"], line["output_tokens"]) == ("client_gone", 3)


def test_a_request_for_no_model_of_ours_is_counted_under_other(telemetry: Telemetry) -> None:
    record = started(telemetry, status=404, outcome="refused:not_found", model="their text")
    telemetry.request_finished(record)
    labels = {"route": "chat_completions", "outcome": "refused:not_found", "model": "other"}
    assert value(telemetry, catalogue.REQUESTS, **labels) == 1
    assert value(telemetry, catalogue.E2E_SECONDS, "_count", model="other") == 1
    assert b"their text" not in telemetry.exposition(None)[0]


def test_an_outcome_nobody_declared_is_an_internal_error_and_logged(
    telemetry: Telemetry, log: Any
) -> None:
    telemetry.request_finished(answered(telemetry, outcome="whatever"))
    labels = {"route": "chat_completions", "outcome": "error:internal"}
    assert value(telemetry, catalogue.REQUESTS, **labels) == 1
    complaint, line = log()
    assert complaint["outcome"] == "whatever"
    assert (line["outcome"], line["level"]) == ("error:internal", "error")


def test_the_log_line_tells_ids_tokens_and_times(telemetry: Telemetry, log: Any) -> None:
    record = answered(
        telemetry,
        client_request_id="theirs-1",
        key="team",
        client_address="10.0.0.7",
        user_agent="curl/8",
    )
    telemetry.request_finished(record)
    (line,) = log()
    expected = {
        "request_id": "req_1",
        "client_request_id": "theirs-1",
        "key": "team",
        "client_address": "10.0.0.7",
        "user_agent": "curl/8",
        "trace_id": record.trace_id,
        "span_id": record.span_id,
        "route": "chat_completions",
        "status": 200,
        "outcome": "stop",
        "error": None,
        "model": "m",
        "stream": True,
        "choices": 1,
        "prompt_tokens": 20,
        "cached_tokens": 16,
        "output_tokens": 11,
        **{f"{phase}_ms": pytest.approx(spent) for phase, spent in PHASE_MS.items()},
        # What is left after the last token: 10 ms, 3 of them until the last write was taken.
        "other_ms": pytest.approx(7),
        "ttft_ms": pytest.approx(41),
        "itl_mean_ms": pytest.approx(5),
        "total_ms": pytest.approx(100),
        "preemptions": 0,
    }
    assert {name: line[name] for name in expected} == expected
    assert len(record.trace_id) == 32


def test_a_client_id_that_is_not_plain_is_not_logged(telemetry: Telemetry, log: Any) -> None:
    record = answered(telemetry, client_request_id='"}\n{"level":"forged')
    telemetry.request_finished(record)
    (line,) = log()
    assert line["client_request_id"] is None


def test_a_user_agent_is_logged_in_128_safe_characters(telemetry: Telemetry, log: Any) -> None:
    sent = 'a\n{"level":"forged"}\x00é' + "x" * 200
    telemetry.request_finished(answered(telemetry, user_agent=sent))
    (line,) = log()
    assert line["user_agent"] == 'a?{"level":"forged"}??' + "x" * 106
    assert len(line["user_agent"]) == 128


def test_clients_are_neither_logged_nor_recorded_where_that_is_switched_off(log: Any) -> None:
    telemetry = Telemetry(["m"], version="1", log_clients=False)
    record = answered(telemetry, client_address="10.0.0.7", user_agent="curl/8", key="team")
    telemetry.request_finished(record)
    (line,) = log()
    assert (line["client_address"], line["user_agent"], line["key"]) == (None, None, "team")
    assert (record.client_address, record.user_agent) == (None, None)


def test_clients_are_in_no_metric(telemetry: Telemetry) -> None:
    fields = {"client_address": "10.0.0.7", "user_agent": "curl/8"}
    telemetry.request_finished(answered(telemetry, **fields))
    page = telemetry.exposition(None)[0]
    assert b"10.0.0.7" not in page
    assert b"curl" not in page


def key_tokens(telemetry: Telemetry) -> dict[tuple[str, str], float]:
    telemetry.exposition(None)
    return {
        (key, kind): telemetry.metrics.sample(catalogue.KEY_TOKENS, {"key": key, "kind": kind})
        or 0.0
        for key in ("alice", "bob", "other", "mallory")
        for kind in ("prompt", "cached", "output")
    }


def test_tokens_are_counted_by_key_also_of_requests_that_were_aborted() -> None:
    telemetry = Telemetry(["m"], version="1", keys=("alice", "bob"))
    assert set(key_tokens(telemetry).values()) == {0.0}
    telemetry.request_finished(answered(telemetry, key="alice"))
    left = {"outcome": "client_gone", "output_tokens": 3, "cached_tokens": 0}
    telemetry.request_finished(answered(telemetry, key="alice", **left))
    telemetry.request_finished(answered(telemetry, key="mallory"))  # none that is configured
    telemetry.request_finished(answered(telemetry))
    # What was refused, or left the queue again, cost no tokens.
    telemetry.request_finished(answered(telemetry, key="bob", sequences=[]))
    unscheduled = sequence(first_scheduled_time=None, first_token_time=None, last_token_time=None)
    telemetry.request_finished(answered(telemetry, key="bob", sequences=[unscheduled]))
    counted = key_tokens(telemetry)
    assert {pair: count for pair, count in counted.items() if count} == {
        ("alice", "prompt"): 4 + 20,
        ("alice", "cached"): 16,
        ("alice", "output"): 11 + 3,
        ("other", "prompt"): 2 * 4,
        ("other", "cached"): 2 * 16,
        ("other", "output"): 2 * 11,
    }
    assert b"mallory" not in telemetry.exposition(None)[0]


def test_several_choices_are_one_request(telemetry: Telemetry, log: Any) -> None:
    late = sequence(first_scheduled_time=1000.02, last_token_time=1000.2, preemptions=2)
    record = answered(telemetry, choices=2, sequences=[late, sequence()])
    telemetry.request_finished(record)
    for phase, seconds in {"queue": 0.004, "decode": 0.160}.items():
        spent = value(telemetry, catalogue.PHASE_SECONDS, "_sum", phase=phase)
        assert spent == pytest.approx(seconds)
    assert value(telemetry, catalogue.REQUEST_PREEMPTIONS, "_sum") == 2
    assert len(log()) == 1


class SamplingTracer(IdentityTracer):
    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        parent: SpanContext | None = None
        return SpanIdentity(0xABC, 0xDEF, sampled=True, parent=parent)


def test_sampled_requests_leave_their_trace_id_at_their_bucket() -> None:
    telemetry = Telemetry(["m"], version="1", tracer=SamplingTracer())
    record = answered(telemetry)
    telemetry.first_token(record)
    telemetry.request_finished(record)
    page = telemetry.exposition("application/openmetrics-text; version=1.0.0")[0].decode()
    linked = {line.split("_bucket")[0] for line in page.splitlines() if f"{0xABC:032x}" in line}
    assert catalogue.TIME_TO_FIRST_TOKEN.name in linked
    assert catalogue.E2E_SECONDS.name in linked


class TailTracer(IdentityTracer):
    """Chooses nothing by chance, and keeps what it is given all the same."""

    def __init__(self) -> None:
        self._sampling = TraceSampling(0.0, follows_callers=True)
        self.servers: list[FinishedSpan] = []

    @property
    def sampling(self) -> TraceSampling:
        return self._sampling

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        self.servers.append(server)


@pytest.mark.parametrize("slow", [False, True])
def test_exemplars_name_only_traces_that_are_exported(slow: bool) -> None:
    tracer = TailTracer()
    telemetry = Telemetry(["m"], version="1", tracer=tracer)
    telemetry.traces.keeping.slo = {"ttft": 0.040 if slow else 0.042, "itl": 0.1}
    record = answered(telemetry)
    telemetry.first_token(record)
    telemetry.request_finished(record)
    page = telemetry.exposition("application/openmetrics-text; version=1.0.0")[0].decode()
    linked = {line.split("_bucket")[0] for line in page.splitlines() if record.trace_id in line}
    assert len(tracer.servers) == int(slow)
    assert bool(linked) == slow
    if slow:
        assert catalogue.TIME_TO_FIRST_TOKEN.name in linked
        assert catalogue.E2E_SECONDS.name in linked


# --- the worker -------------------------------------------------------------------------------


def test_lost_log_lines_and_spans_are_counted() -> None:
    lost = {"lines": 3}
    telemetry = Telemetry(["m"], version="1", dropped_log_lines=lambda: lost["lines"])
    telemetry.exposition(None)
    lost["lines"] = 5
    page = telemetry.exposition(None)[0].decode()
    assert 'quire_telemetry_dropped_total{signal="log_lines"} 5.0' in page
    assert 'quire_telemetry_dropped_total{signal="spans"} 0.0' in page


async def test_a_blocked_event_loop_shows_as_lag(telemetry: Telemetry) -> None:
    watch = asyncio.create_task(telemetry.watch_event_loop())
    await asyncio.sleep(0)
    time.sleep(0.6)  # what no handler should ever do
    lag = telemetry.metrics.series(catalogue.EVENT_LOOP_LAG_SECONDS)()
    async with asyncio.timeout(5):
        while not lag.total:
            await asyncio.sleep(0.01)
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    assert lag.total > 0.3


def test_telemetry_loads_neither_torch_nor_the_opentelemetry_sdk() -> None:
    script = (
        "import sys; from service.telemetry.requests import Telemetry;"
        "Telemetry(['m'], version='1');"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'grpc')"
        " or m.startswith('opentelemetry.sdk')])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
