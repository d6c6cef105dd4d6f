"""The numbers on the live page, out of a scrape of the catalogue's metrics."""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dashboard.exposition import parse
from dashboard.reading import FAMILIES, SHOWN, Reading, engine_labels, read
from dashboard.series import History
from observability import catalogue
from observability.metric_kinds import Metric, MetricKind
from observability.outcomes import OUTCOMES, OutcomeGroup

INSTRUMENTS = {MetricKind.GAUGE: Gauge, MetricKind.INFO: Gauge, MetricKind.COUNTER: Counter}


class Server:
    """Exposes every metric the page shows, under every closed label value."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._instruments = {metric.name: self._instrument(metric) for metric in SHOWN}
        self._history = History(60)
        self._time = 0.0

    def _instrument(self, metric: Metric) -> Any:
        names = [label.name for label in metric.labels]
        if metric.kind is MetricKind.HISTOGRAM:
            return Histogram(
                metric.name, metric.help, names, registry=self.registry, buckets=metric.buckets
            )
        return INSTRUMENTS[metric.kind](metric.name, metric.help, names, registry=self.registry)

    def of(self, metric: Metric, **labels: str) -> Any:
        values = {label.name: labels.get(label.name, "any") for label in metric.labels}
        return self._instruments[metric.name].labels(**values)

    def read(self, seconds: float = 1.0) -> Reading:
        """What the page shows ``seconds`` after the reading before."""
        self._time += seconds
        self._history.append(self._time, parse(generate_latest(self.registry).decode(), FAMILIES))
        return read(self._time, self._history)


def test_the_slots_are_those_of_all_engines() -> None:
    history = History(60)
    info = 'quire_engine_info{model="m",max_num_seqs="4"} 1\n'
    history.append(1.0, parse(f"# TYPE quire_engine_info gauge\n{info}", FAMILIES))
    assert engine_labels(history)["max_num_seqs"] == "4"  # a server that has no such metric
    states = "".join(
        f'quire_engines{{model="m",state="{state}"}} {engines}\n'
        for state, engines in (("ok", 1), ("loading", 1), ("lost", 0))
    )
    page = f"# TYPE quire_engine_info gauge\n{info}# TYPE quire_engines gauge\n{states}"
    history.append(2.0, parse(page, FAMILIES))
    assert engine_labels(history)["max_num_seqs"] == "8"


def test_gauges_are_split_by_their_label() -> None:
    server = Server()
    server.of(catalogue.SEQUENCES_RUNNING).set(5)
    server.of(catalogue.SEQUENCES_WAITING, reason="slots").set(0)
    server.of(catalogue.SEQUENCES_WAITING, reason="kv_blocks").set(7)
    server.of(catalogue.KV_USAGE_RATIO).set(0.25)
    reading = server.read()
    assert reading.running == 5
    assert reading.waiting["kv_blocks"] == reading.waiting_total == 7
    assert reading.waiting["slots"] == 0
    assert reading.kv_ratio == 0.25


def test_tokens_are_split_by_where_they_came_from() -> None:
    server = Server()
    computed = server.of(catalogue.PROMPT_TOKENS, source="computed")
    cached = server.of(catalogue.PROMPT_TOKENS, source="cached")
    generated = server.of(catalogue.GENERATED_TOKENS)
    server.read()
    computed.inc(30)
    cached.inc(10)
    generated.inc(50)
    reading = server.read(seconds=2)
    assert (reading.prompt_computed, reading.prompt_cached, reading.generated) == (15, 5, 25)


def test_requests_are_counted_by_how_they_ended() -> None:
    server = Server()
    server.read()
    server.of(catalogue.REQUESTS, outcome="stop").inc(3)
    server.of(catalogue.REQUESTS, outcome="client_gone").inc()
    reading = server.read()
    assert reading.requests == {"stop": 3, "client_gone": 1}
    assert reading.requests_total == 4


def test_every_outcome_is_counted_in_its_group() -> None:
    server = Server()
    server.read()
    for outcome in OUTCOMES:
        server.of(catalogue.REQUESTS, outcome=outcome.name).inc()
    server.of(catalogue.REQUESTS, outcome="of a newer server").inc()
    reading = server.read()
    sizes = {group: sum(each.group is group for each in OUTCOMES) for group in OutcomeGroup}
    sizes[OutcomeGroup.FAILED] += 1
    assert {group: reading.ended(group) for group in OutcomeGroup} == sizes


def test_latencies_are_those_of_the_last_half_minute() -> None:
    server = Server()
    first = server.of(catalogue.TIME_TO_FIRST_TOKEN)
    first.observe(100)
    server.read()
    for _ in range(100):
        first.observe(0.15)
    reading = server.read()
    assert 0.1 <= reading.ttft.p50 <= reading.ttft.p95 <= 0.2


def test_what_an_older_server_does_not_say_is_not_known() -> None:
    server = Server()
    server.read()
    server.of(catalogue.REQUESTS, outcome="stop").inc(3)
    server.of(catalogue.REQUESTS_IN_PROGRESS).set(2)
    reading = server.read()
    assert math.isnan(reading.silence)
    assert math.isnan(reading.oldest_waiting)
    assert math.isnan(reading.longest_gap)
    assert reading.arriving == reading.requests_total == 3
    assert reading.in_hand == 2


def test_requests_that_begin_are_the_load_where_they_are_counted() -> None:
    server = Server()
    received = Counter(
        catalogue.REQUESTS_RECEIVED.name, "…", ["route"], registry=server.registry
    ).labels("none")
    server.read()
    received.inc(8)
    server.of(catalogue.REQUESTS, outcome="stop").inc(3)
    assert server.read().arriving == 8


def test_before_the_second_reading_no_rate_is_known() -> None:
    reading = Server().read()
    assert math.isnan(reading.generated)
    assert math.isnan(reading.requests_total)
    assert math.isnan(reading.ttft.p95)


def test_without_traffic_rates_are_zero_and_latencies_unknown() -> None:
    server = Server()
    server.of(catalogue.GENERATED_TOKENS).inc(0)
    server.of(catalogue.TIME_TO_FIRST_TOKEN)
    server.read()
    reading = server.read()
    assert reading.generated == 0
    assert math.isnan(reading.ttft.p50)
