from __future__ import annotations

import pytest

from engine.inspected import Inspect, Inspected
from engine.loop.inspections import FRESH_SECONDS, MOST_WAITING, InspectionQueue
from engine.schedule import inspection
from engine.schedule.scheduler import Scheduler


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def scheduler(num_blocks: int = 8) -> Scheduler:
    return Scheduler(
        num_kv_blocks=num_blocks,
        block_size=4,
        max_model_len=32,
        max_num_seqs=2,
        max_num_batched_tokens=32,
    )


def answers(of: InspectionQueue) -> list[tuple[int, Inspected]]:
    found = []
    while of.has_work:
        found += of.advance()
    return found


def test_each_connection_gets_the_answer_with_its_own_number() -> None:
    inspections = InspectionQueue(scheduler(), Clock())
    inspections.ask(1, Inspect(7))
    inspections.ask(2, Inspect(7, kv=False, prefixes=3))
    first, second = answers(inspections)
    assert (first[0], first[1].number, first[1].prefixes) == (1, 7, None)
    assert first[1].kv is not None
    assert (second[0], second[1].number, second[1].kv) == (2, 7, None)
    assert second[1].prefixes is not None


def test_an_answer_is_worked_out_at_most_twice_a_second() -> None:
    clock = Clock()
    inspections = InspectionQueue(scheduler(), clock)
    times = []
    for number in range(10):
        inspections.ask(1, Inspect(number))
        ((_, answer),) = answers(inspections)
        assert answer.number == number
        times.append(answer.time)
        clock.now += FRESH_SECONDS / 4
    assert sorted(set(times)) == [100.0, 100.5, 101.0]


def test_of_too_many_that_wait_the_oldest_is_not_answered() -> None:
    inspections = InspectionQueue(scheduler(), Clock())
    for number in range(MOST_WAITING + 1):
        inspections.ask(1, Inspect(number))
    assert [one.number for _, one in answers(inspections)] == list(range(1, MOST_WAITING + 1))


def test_one_slice_is_done_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "SLICE_BLOCKS", 2)
    inspections = InspectionQueue(scheduler(8), Clock())
    inspections.ask(1, Inspect(1))
    turns = 0
    while inspections.has_work:
        turns += 1
        list(inspections.advance())
    assert turns >= 4


def test_a_failure_ends_the_inspection_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    inspections = InspectionQueue(scheduler(), Clock())

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    inspections.ask(1, Inspect(1))
    with monkeypatch.context() as patched:
        patched.setattr(inspection, "_runs", fail)
        assert answers(inspections) == []
    inspections.ask(1, Inspect(2))
    assert [one.number for _, one in answers(inspections)] == [2]
