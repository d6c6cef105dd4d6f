"""When faults happen, and how often in all processes together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.faults.page import FaultPage, FaultTrigger
from engine.faults.table import Fault, Place, parse_fault


def page(folder: Path, *texts: str) -> FaultPage:
    return FaultPage.create(folder / "faults", [parse_fault(text) for text in texts])


def events(trigger: FaultTrigger, count: int) -> list[int]:
    """At which of the events it happens, from 1."""
    return [number for number in range(1, count + 1) if trigger()]


def test_other_processes_read_the_faults_of_their_place(tmp_path: Path) -> None:
    page(tmp_path, "slow_step:after=3", "worker_kill", "store_down:seconds=1")
    other = FaultPage(tmp_path / "faults")
    assert [fault.name for fault, _ in other.at(Place.ENGINE)] == ["slow_step"]
    assert [fault for fault, _ in other.at(Place.STORE)] == [Fault(name="store_down", seconds=1)]
    assert not list(other.at(Place.EXPORTER))
    assert (tmp_path / "faults").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "happens"),
    [
        ("slow_step", [1]),
        ("slow_step:times=3", [1, 2, 3]),
        ("slow_step:after=4:times=2", [5, 6]),
        ("slow_step:after=1:every=4:times=100", [2, 6, 10, 14, 18]),
        ("slow_step:times=0", []),
    ],
)
def test_a_fault_happens_at_the_events_of_its_keys(
    tmp_path: Path, text: str, happens: list[int]
) -> None:
    [(_, trigger)] = page(tmp_path, text).at(Place.ENGINE)
    assert events(trigger, 20) == happens


def test_chance_is_the_same_with_the_same_seed(tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"slow_step:probability=0.3:times=1000:seed={seed}"
        [(_, trigger)] = page(folder, text).at(Place.ENGINE)
        found.append(events(trigger, 500))
    assert found[0] == found[1] != found[2]
    assert 100 < len(found[0]) < 200


def test_a_restarted_process_does_not_begin_anew(tmp_path: Path) -> None:
    first = page(tmp_path, "engine_kill:after=2:times=2")
    [(_, killed)] = first.at(Place.ENGINE)
    assert events(killed, 3) == [3]
    [(_, restarted)] = FaultPage(tmp_path / "faults").at(Place.ENGINE)
    assert events(restarted, 10) == [3]
    [(_, third)] = FaultPage(tmp_path / "faults").at(Place.ENGINE)
    assert events(third, 10) == []
    assert first.counts("engine_kill").injected == 2


def test_what_is_asked_for_happens_next_once_and_besides(tmp_path: Path) -> None:
    asking = page(tmp_path, "slow_step:after=5")
    triggers = [
        trigger for _ in range(2) for _, trigger in FaultPage(tmp_path / "faults").at(Place.ENGINE)
    ]
    asking.ask("slow_step")
    assert [trigger() for trigger in triggers] == [True, False]
    assert events(triggers[0], 10) == [5]
    counts = asking.counts("slow_step")
    assert (counts.asked, counts.injected) == (1, 2)


def test_threads_never_exceed_the_number_of_times(tmp_path: Path) -> None:
    made = page(tmp_path, "slow_step:times=50")
    [(_, trigger)] = made.at(Place.ENGINE)
    with ThreadPoolExecutor(8) as pool:
        happened = list(pool.map(lambda _: trigger(), range(400)))
    assert sum(happened) == made.counts("slow_step").injected == 50
