"""What waits at all workers."""

from __future__ import annotations

from pathlib import Path

from engine.queueing import ServiceClass
from observability import connection_metrics
from service.engine.silence import EngineFigures, EngineStatus
from service.engine.waits import ClassWait
from service.overview.queues import AllQueues, Queues
from service.telemetry.requests import Telemetry
from tests.service.telemetry.test_engine_totals import one_of


def waits(worker: Telemetry, predicted: float | None, **counts: tuple[int, float]) -> None:
    """A worker says what waits there, and since when, by class."""
    found = {ServiceClass(name): ClassWait(*wait) for name, wait in counts.items()}
    figures = EngineFigures(EngineStatus.OK, 0.0, found, 0.5, predicted)
    worker.read_engine(lambda: figures)
    worker.publish()


def test_counts_are_added_and_of_times_the_longest_is_taken(tmp_path: Path) -> None:
    first, second = (one_of(tmp_path, number, leads=number == 0) for number in range(2))
    waits(first, 4.0, standard=(1, 2.0), batch=(2, 7.0))
    waits(second, None, standard=(3, 5.0))
    for worker in (first, second):
        queues = AllQueues(worker.metrics)
        assert queues
        assert queues.read() == Queues(6, 7.0, 4.0, 0.5)
    waits(first, None)
    assert AllQueues(first.metrics).read() == Queues(3, 5.0, None, 0.5)


def test_connections_are_those_of_all_workers(tmp_path: Path) -> None:
    first, second = (one_of(tmp_path, number, leads=number == 0) for number in range(2))
    for worker, open_now in ((first, 96), (second, 4)):
        worker.metrics[connection_metrics.OPEN_CONNECTIONS].labels().set(open_now)
        worker.metrics[connection_metrics.CONNECTION_LIMIT].labels().set(96)
    assert AllQueues(first.metrics).connections() == (100, 192)
    assert AllQueues(second.metrics).connections() == (100, 192)


def test_one_worker_has_no_others_to_read() -> None:
    assert not AllQueues(Telemetry(["m"], version="1").metrics)
