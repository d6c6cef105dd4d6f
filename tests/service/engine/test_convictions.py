"""What one worker learns about a request that kills engines, the others know."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from service.engine.convictions import MOST_REMEMBERED, REMEMBERED_SECONDS, Convictions


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_conviction_holds_for_all_workers_and_for_those_that_start_later(tmp_path: Path) -> None:
    first, second = (Convictions(tmp_path / "convicted") for _ in range(2))
    assert not second
    for number in range(20):  # within one tick of the kernel's clock, some of them
        first.add(digest(number))
        assert digest(number) in second
    third = Convictions(tmp_path / "convicted")
    assert all(digest(number) in third for number in range(20))
    assert digest(20) not in third


def test_it_is_forgotten_after_an_hour(tmp_path: Path) -> None:
    now = time.time()
    first, second = (Convictions(tmp_path / "convicted", clock=lambda: now) for _ in range(2))
    first.add(digest(1))
    now += REMEMBERED_SECONDS - 1
    assert digest(1) in second
    now += 2
    assert digest(1) not in second
    second.add(digest(2))
    assert [file.name for file in (tmp_path / "convicted").iterdir()] == [digest(2).hex()]


def test_the_oldest_of_too_many_is_dropped(tmp_path: Path) -> None:
    now = time.time()
    first, second = (Convictions(tmp_path / "convicted", clock=lambda: now) for _ in range(2))
    for number in range(MOST_REMEMBERED + 1):
        now += 0.001
        first.add(digest(number))
    assert digest(0) not in second
    assert digest(1) in second
    assert len(list((tmp_path / "convicted").iterdir())) == MOST_REMEMBERED


def test_without_a_folder_that_can_be_used_each_worker_knows_its_own(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = Convictions(file / "convicted")
    found.add(digest(1))
    assert digest(1) in found


def test_a_conviction_without_a_file_is_kept_when_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Convictions(tmp_path / "convicted") for _ in range(2))

    def full(self: Path, **_: object) -> None:
        raise OSError(28, "No space left on device")

    second.add(digest(1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", full)
        first.add(digest(2))
    second.add(digest(3))
    assert [digest(number) in first for number in (1, 2, 3)] == [True, True, True]
    assert digest(2) not in second


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path) -> None:
    folder = tmp_path / "convicted"
    first = Convictions(folder)
    first.add(digest(1))
    os.utime(folder, (1e9, 1e9))
    assert digest(1) in first
    for file in folder.iterdir():
        file.unlink()
    os.utime(folder, (1e9, 1e9))
    assert digest(1) in first


def test_what_is_added_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "convicted"
    first, second = Convictions(folder), Convictions(folder)
    tick = time.time_ns()
    for number in (1, 2):
        first.add(digest(number))
        os.utime(folder, ns=(tick, tick))
        assert digest(number) in second


def test_a_file_of_another_kind_in_the_folder_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "convicted"
    first, second = Convictions(folder), Convictions(folder)
    first.add(digest(1))
    (folder / ".nfs0001").touch()
    assert digest(1) in second
