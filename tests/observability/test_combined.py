"""What a page shows of several workers: every number once, from each of them, the dead included."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from observability import catalogue
from observability.combined import Shared
from observability.metrics import MetricRegistry

Server = Callable[[int], MetricRegistry]
WORKERS = 3


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Starts the worker of an index, after the one before with its ledger if there was one."""
    descriptors = [
        os.open(tmp_path / f"ledger-{index}", os.O_RDWR | os.O_CREAT) for index in range(WORKERS)
    ]

    def start(index: int, models: tuple[str, ...] = ("m",)) -> MetricRegistry:
        others = [one for number, one in enumerate(descriptors) if number != index]
        own = os.open(tmp_path / f"ledger-{index}", os.O_RDWR)
        return MetricRegistry(models, descriptor=own, shared=Shared(ledgers=others))

    return start


def shown(metrics: MetricRegistry, accept: str = "") -> dict[str, str]:
    page = metrics.exposition(accept)[0].decode()
    return dict(
        line.rsplit(" ", 1) if " # " not in line else (line.split(" ")[0], line)
        for line in page.splitlines()
        if line.startswith("quire_")
    )


def test_counters_histograms_and_gauges_add_up_whoever_answers(server: Server) -> None:
    workers = [server(index) for index in range(WORKERS)]
    for number, worker in enumerate(workers, 1):
        worker[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc(number)
        worker[catalogue.REQUESTS_IN_PROGRESS].labels("chat_completions").set(number)
        worker[catalogue.E2E_SECONDS].labels("m").observe(0.1 * number)
        worker[catalogue.OLDEST_WAITING_SECONDS].labels("m").set(number)
        worker[catalogue.PREDICTED_WAIT_SECONDS].labels("m").set(10 - number)
        worker[catalogue.SEQUENCES_RUNNING].labels("m").set(7)
    for worker in workers:
        page = shown(worker)
        assert page['quire_requests_received_total{route="chat_completions"}'] == "6.0"
        assert page['quire_requests_in_progress{route="chat_completions"}'] == "6.0"
        assert page['quire_request_seconds_count{model="m"}'] == "3.0"
        assert float(page['quire_request_seconds_sum{model="m"}']) == pytest.approx(0.6)
        assert page['quire_oldest_waiting_seconds{model="m"}'] == "3.0"
        assert page['quire_predicted_wait_seconds{model="m"}'] == "9.0"
        assert page['quire_sequences_running{model="m"}'] == "7.0"
    workers[0][catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc()
    assert shown(workers[2])['quire_requests_received_total{route="chat_completions"}'] == "7.0"


def test_a_dead_worker_counts_and_its_successor_continues(server: Server) -> None:
    alive, dying = server(0), server(1)
    alive[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc(5)
    dying[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc(3)
    name = 'quire_requests_received_total{route="chat_completions"}'
    assert shown(alive)[name] == "8.0"
    del dying
    assert shown(alive)[name] == "8.0"
    following = server(1)
    following[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc()
    assert shown(alive)[name] == shown(following)[name] == "9.0"


def test_a_series_appears_once_any_worker_has_used_it(server: Server) -> None:
    one, other = server(0), server(1)
    name = 'quire_requests_total{model="m",outcome="stop",route="chat_completions"}'
    assert name not in shown(one)
    other[catalogue.REQUESTS].labels("m", "chat_completions", "stop").inc()
    assert shown(one)[name] == shown(other)[name] == "1.0"


def test_a_value_that_one_worker_does_not_know_is_that_of_the_others(server: Server) -> None:
    one, other = server(0), server(1)
    gauge, name = catalogue.LONGEST_GAP_SECONDS, 'quire_longest_gap_seconds{model="m"}'
    one[gauge].labels("m").set(None)
    other[gauge].labels("m").set(2.5)
    assert shown(one)[name] == "2.5"
    other[gauge].labels("m").set(None)
    assert name not in shown(one)
    one[catalogue.HANDOVERS].labels("m").hide()
    other[catalogue.HANDOVERS].labels("m").inc(4)
    assert shown(one)['quire_handovers_total{model="m"}'] == "4.0"


def test_the_newest_exemplar_of_each_bucket_is_shown(server: Server) -> None:
    one, other = server(0), server(1)
    for worker, trace_id in ((one, 0xA), (other, 0xB)):
        worker[catalogue.E2E_SECONDS].labels("m").observe(0.02, trace_id)
    one[catalogue.E2E_SECONDS].labels("m").observe(3.0, 0xC)
    page = shown(other, "application/openmetrics-text; version=1.0.0")
    linked = "".join(line for line in page.values() if " # " in line)
    assert f"{0xB:032x}" in linked
    assert f"{0xC:032x}" in linked
    assert f"{0xA:032x}" not in linked


def test_a_ledger_with_another_layout_is_left_out(server: Callable[..., MetricRegistry]) -> None:
    one, other = server(0), server(1)
    name = 'quire_requests_received_total{route="chat_completions"}'
    for worker in (one, other):
        worker[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc(2)
    assert shown(one)[name] == "4.0"
    changed = server(1, ("m", "another"))
    changed[catalogue.REQUESTS_RECEIVED].labels("chat_completions").inc(9)
    assert shown(one)[name] == "2.0"
    assert shown(changed)[name] == "9.0"


def test_a_worker_alone_reads_its_own_cells() -> None:
    metrics = MetricRegistry(["m"])
    assert not metrics.workers
    for metric in (catalogue.REQUESTS, catalogue.OLDEST_WAITING_SECONDS):
        assert metrics.workers[metric.combined] is metrics.ledger
