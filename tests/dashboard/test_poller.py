"""One poller a server: it stops when no one looks, and outlives the server's restarts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from dashboard.condition import condition
from dashboard.poller import Poller
from dashboard.server import State
from observability import catalogue
from tests.dashboard.foreign_server import Exchange, ForeignServer
from tests.e2e.quire_server import until


class Process:
    """The metrics of one life of a server process. ``server``: its identity, if it has one."""

    def __init__(self, server: str = "") -> None:
        self.registry = CollectorRegistry()
        if server:
            about = catalogue.BUILD_INFO
            Gauge(about.name, about.help, ["server"], registry=self.registry).labels(server).set(1)
        names = [label.name for label in catalogue.GENERATED_TOKENS.labels]
        metric = catalogue.GENERATED_TOKENS
        self.generated = Counter(metric.name, metric.help, names, registry=self.registry).labels(
            *(["pocket"] * len(names))
        )
        metric = catalogue.SEQUENCES_RUNNING
        names = [label.name for label in metric.labels]
        self.running = Gauge(metric.name, metric.help, names, registry=self.registry).labels(
            *(["pocket"] * len(names))
        )

    def metrics(self, exchange: Exchange) -> None:
        exchange.answer(200, generate_latest(self.registry).decode(), "text/plain")


def says(status: int, content: str) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.answer(status, content)


@pytest.fixture
def process(foreign: ForeignServer) -> Process:
    process = Process()
    foreign.replies["/metrics"] = process.metrics
    foreign.replies["/health"] = says(200, json.dumps({"status": "ok", "model": "pocket"}))
    return process


@pytest.fixture
def poller(foreign: ForeignServer) -> Iterator[Poller]:
    poller = Poller(foreign.url, interval=0.02, patience=0.3)
    yield poller
    poller.close()


def test_the_first_look_waits_for_the_first_reading(process: Process, poller: Poller) -> None:
    process.running.set(3)
    view = poller.view(wait=10)
    assert view.health.state is State.READY
    assert view.latest is not None
    assert view.latest.running == 3
    assert view.age is not None
    assert 0 <= view.age < 10


def test_many_looks_are_one_scrape_per_interval(foreign: ForeignServer, process: Process) -> None:
    poller = Poller(foreign.url, interval=60)
    try:
        for _ in range(100):
            poller.view(wait=10)
        assert foreign.requests.count("GET /metrics") == 1
    finally:
        poller.close()


def test_rates_are_measured_between_scrapes(process: Process, poller: Poller) -> None:
    def generated() -> bool:
        process.generated.inc(1)
        latest = poller.view().latest
        return latest is not None and latest.generated > 0

    until(generated, 10, "a rate of generated tokens")


def test_it_stops_when_nobody_looks_and_starts_again_at_a_look(
    foreign: ForeignServer, process: Process, poller: Poller
) -> None:
    poller.view(wait=10)
    until(lambda: not poller.polling, 10, "the poller to stop")
    scraped = foreign.requests.count("GET /metrics")
    poller.view()
    until(lambda: foreign.requests.count("GET /metrics") > scraped, 10, "the next scrape")


def test_while_the_server_is_away_it_says_so_and_keeps_what_it_knows(
    foreign: ForeignServer, process: Process, poller: Poller
) -> None:
    process.running.set(3)
    poller.view(wait=10)
    foreign.stop()
    until(lambda: poller.view().health.state is State.UNREACHABLE, 10, "the loss to show")
    view = poller.view()
    assert view.problem == f"Could not connect to {foreign.url}."
    assert view.latest is not None
    assert view.latest.running == 3
    age = view.age
    assert age is not None
    until(lambda: (poller.view().age or 0) > age, 10, "the data to age")
    foreign.start_again()
    until(lambda: poller.view().health.state is State.READY, 10, "the return to show")


@pytest.mark.parametrize("status", ["loading", "draining", "lost", "silent"])
def test_what_health_says_stands_beside_metrics_that_work(
    foreign: ForeignServer, process: Process, poller: Poller, status: str
) -> None:
    body = {"status": status, "model": "pocket", "engine": {"detail": "weights 3/7"}}
    foreign.replies["/health"] = says(503, json.dumps(body))
    view = poller.view(wait=10)
    assert view.latest is not None
    assert "weights 3/7" in view.health.detail
    assert "weights 3/7" in " ".join(condition(view).sentences)
    assert view.problem == ""


def test_a_restarted_server_makes_no_negative_rate(
    foreign: ForeignServer, process: Process, poller: Poller
) -> None:
    process.generated.inc(1000)
    until(lambda: len(poller.view().readings) >= 2, 10, "two readings")
    foreign.stop()
    foreign.replies["/metrics"] = Process().metrics
    until(lambda: poller.view().health.state is State.UNREACHABLE, 10, "the loss to show")
    before = len(poller.view().readings)
    foreign.start_again()
    until(lambda: len(poller.view().readings) >= before + 2, 10, "readings of the new process")
    assert all(not reading.generated < 0 for reading in poller.view().readings)


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (401, "{}", "/metrics returned 401 Unauthorized"),
        (200, "<html>", "not in the Prometheus text format"),
        (200, "# TYPE other gauge\nother 1\n", "has no Quire metrics"),
    ],
)
def test_metrics_that_cannot_be_had_are_explained(
    foreign: ForeignServer, poller: Poller, status: int, content: str, words: str
) -> None:
    foreign.replies["/health"] = says(200, '{"status": "ok"}')
    foreign.replies["/metrics"] = says(status, content)
    view = poller.view(wait=10)
    assert words in view.problem
    assert view.latest is None


@pytest.mark.proves("dashboard", "replicas")
def test_several_servers_behind_one_address_are_named_and_never_added(
    foreign: ForeignServer, process: Process, poller: Poller
) -> None:
    servers = [Process("pod-a:8000"), Process("pod-b:8000")]
    servers[0].generated.inc(1_000_000)
    asked = 0

    def answer(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        for server in servers:
            server.generated.inc(1)
        servers[asked % 2].metrics(exchange)

    foreign.replies["/metrics"] = answer
    poller.view(wait=10)
    until(lambda: len(poller.view().readings) >= 10, 10, "ten readings")
    view = poller.view()
    assert "leads to several servers (pod-a:8000, pod-b:8000)" in view.problem
    # Each grew by at most one token in each of the scrapes; 20 ms lie between two.
    assert all(not reading.generated > 1000 for reading in view.readings)
    assert any("several servers" in sentence for sentence in condition(view).sentences)
