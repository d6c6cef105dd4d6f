"""A request that a killed worker was serving ends once, wherever the kill came."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from observability import catalogue, ledger, open_requests, series
from observability.logging import configure
from observability.metric_kinds import Metric
from observability.tracing import FinishedSpan, IdentityTracer, SpanIdentity
from service.telemetry import cut_requests, observations, requests
from service.telemetry.cut_requests import end_cut_requests
from service.telemetry.requests import Telemetry
from tests.observability.kills import states_between_lines
from tests.service.request_records import answered, started
from tests.service.telemetry.successors import successor, worker

TOUCHED = (ledger, open_requests, series, requests, observations, cut_requests)


class Recorder(IdentityTracer):
    """Samples everything and keeps the server spans."""

    def __init__(self) -> None:
        self.spans: list[tuple[SpanIdentity, FinishedSpan]] = []

    def begin(self, traceparent: str | None, tracestate: str | None) -> SpanIdentity:
        identity = super().begin(traceparent, tracestate)
        return SpanIdentity(identity.trace_id, identity.span_id, True, identity.parent)

    def write(
        self, identity: SpanIdentity, server: FinishedSpan, children: Iterable[FinishedSpan]
    ) -> None:
        self.spans.append((identity, server))


@pytest.fixture
def log() -> Iterator[Any]:
    stream = io.BytesIO()
    writer = configure(log_format="json", stream=stream)

    def lines() -> list[dict[str, Any]]:
        writer.close()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield lines
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "OPEN_REQUEST_ROWS", 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def ended(telemetry: Telemetry) -> Counter[tuple[str, str, str]]:
    """Requests by model, route and outcome."""
    found: Counter[tuple[str, str, str]] = Counter()
    for sample in telemetry.metrics.samples():
        if sample.name == catalogue.REQUESTS.name:
            labels = sample.labels
            key = labels["model"], labels["route"], labels["outcome"]
            found[key] = int(sample.value)
    return +found


def in_progress(telemetry: Telemetry) -> float:
    return sum(
        sample.value
        for sample in telemetry.metrics.samples()
        if sample.name == catalogue.REQUESTS_IN_PROGRESS.name
    )


def count(telemetry: Telemetry, metric: Metric, model: str = "m") -> float | None:
    return telemetry.metrics.sample(metric, {"model": model}, "_count")


def test_each_gets_a_count_a_span_and_a_log_line(path: Path, log: Any) -> None:
    before = worker(path, Recorder())
    told = started(before, request_id="req_told", model="m", stream=True, status=200)
    told.first_token_time = told.received_time + 0.25
    before.first_token(told)
    untold = started(before, request_id="req_untold", route="messages")
    recorder = Recorder()
    after = successor(path, recorder)
    assert ended(after) == {
        ("m", "chat_completions", "error:worker"): 1,
        ("other", "messages", "error:worker"): 1,
    }
    assert in_progress(after) == 0
    spans = {identity.trace_id_hex: span for identity, span in recorder.spans}
    lines = {line["request_id"]: line for line in log() if line["event"] == "request"}
    for record in (told, untold):
        assert spans[record.trace_id].error == "error:worker"
        line = lines[record.request_id]
        assert (line["outcome"], line["trace_id"]) == ("error:worker", record.trace_id)
        assert (line["span_id"], line["route"]) == (record.span_id, record.route)
        assert line["level"] == "error"
    assert lines["req_told"]["ttft_ms"] == pytest.approx(250)
    assert lines["req_told"]["total_ms"] >= 250
    assert count(after, catalogue.TIME_TO_FIRST_TOKEN) == 1
    assert ended(successor(path)) == ended(after)


def test_counts_and_exemplars_go_on_where_they_stood(path: Path) -> None:
    before = successor(path, Recorder())
    record = answered(before)
    before.first_token(record)
    before.request_finished(record)
    after = successor(path)
    page = after.exposition("application/openmetrics-text; version=1.0.0")[0].decode()
    assert sum(record.trace_id in line for line in page.splitlines()) >= 5
    after.request_finished(answered(after))
    assert ended(after) == {("m", "chat_completions", "stop"): 2}
    assert count(after, catalogue.E2E_SECONDS) == 2


def test_wherever_the_kill_comes_each_request_that_began_is_counted_once(path: Path) -> None:
    """The worker serves four requests one into another; it is killed between any two lines of what
    touches the ledger."""
    before = successor(path, Recorder())

    def work() -> None:
        records = []
        for number in range(3):
            records.append(started(before, request_id=f"req_{number}", model="m", stream=True))
            before.request_described(records[-1])
        for record in records[:2]:
            record.first_token_time = record.received_time
            before.first_token(record)
        records[0].outcome = "stop"
        before.request_finished(records[0])
        records[1].outcome = "client_gone"
        before.request_finished(records[1])
        records.append(started(before, request_id="req_3", model="m"))

    states = states_between_lines(work, path.read_bytes, *TOUCHED)
    assert len(states) > 60
    seen = []
    for state in states:
        path.write_bytes(state)
        after = successor(path)
        counted = ended(after)
        assert in_progress(after) == 0
        assert count(after, catalogue.E2E_SECONDS) == sum(counted.values())
        first_tokens = count(after, catalogue.TIME_TO_FIRST_TOKEN)
        assert first_tokens is not None
        assert first_tokens <= sum(counted.values())
        assert list(after.open_requests) == []
        seen.append((sum(counted.values()), counted["m", "chat_completions", "stop"]))
    # As time passes, more requests have begun, and none of them is ever missing.
    assert seen == sorted(seen)
    assert {total for total, _ in seen} == {0, 1, 2, 3, 4}
    assert seen[-1] == (4, 1)


def test_the_next_worker_may_be_killed_while_it_ends_them(path: Path) -> None:
    before = worker(path)
    for number in range(6):  # two of them without a row
        started(before, request_id=f"req_{number}", model="m")
    del before

    def end() -> None:
        end_cut_requests(worker(path))

    states = states_between_lines(end, path.read_bytes, *TOUCHED)
    assert len(states) > 12
    for state in states:
        path.write_bytes(state)
        after = successor(path)
        assert ended(after) == {
            ("m", "chat_completions", "error:worker"): 4,
            ("other", "chat_completions", "error:worker"): 2,
        }
        assert in_progress(after) == 0


def test_more_than_the_table_holds_are_counted_without_their_model(path: Path, log: Any) -> None:
    before = worker(path)
    records = [started(before, request_id=f"req_{n}", model="m") for n in range(7)]
    for record in records:
        record.outcome = "stop"
    before.request_finished(records[0])  # one with a row, and one without
    before.request_finished(records[6])
    assert in_progress(before) == 5
    after = successor(path)
    assert sum(ended(after).values()) == 7
    assert ended(after)["other", "chat_completions", "error:worker"] == 2
    complaint = next(line for line in log() if line["event"] != "request")
    assert (complaint["route"], complaint["count"]) == ("chat_completions", 2)


def test_a_row_that_cannot_be_read_is_counted_all_the_same(path: Path) -> None:
    before = worker(path)
    started(before, model="m")
    [(row, _)] = before.open_requests
    before.open_requests.update(row, b"of another version")
    assert ended(successor(path)) == {("other", "chat_completions", "error:worker"): 1}


def test_metrics_of_another_layout_begin_at_zero_and_the_log_says_so(
    path: Path, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = worker(path)
    started(before)
    monkeypatch.setattr(requests, "OPEN_REQUEST_ROWS", 5)
    assert ended(successor(path)) == {}
    assert any("begin at 0" in line["event"] for line in log())


def test_a_first_worker_has_nothing_to_end(path: Path, log: Any) -> None:
    assert ended(successor(path)) == {}
    assert log() == []
