from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from observability.history import HISTORY
from service.overview.ring import HISTORY_SECONDS, MARKS_BYTES, RATES, Ring


def opened(path: Path) -> Ring:
    return Ring(os.open(path, os.O_RDWR | os.O_CREAT))


def row(value: float) -> list[float]:
    return [value + number for number in range(len(HISTORY))]


def test_a_second_is_read_as_it_was_put() -> None:
    ring = Ring()
    ring.put(7, 1.0, row(100.0))
    assert ring.row(7) == row(100.0)
    assert ring.row(8) is None


def test_an_hour_later_a_second_is_gone() -> None:
    ring = Ring()
    ring.put(7, 1.0, row(1.0))
    ring.put(7 + HISTORY_SECONDS, 1.0, row(2.0))
    assert ring.row(7) is None
    assert ring.row(7 + HISTORY_SECONDS) == row(2.0)


def test_columns_are_read_across_the_ring_s_end() -> None:
    ring = Ring()
    first = HISTORY_SECONDS - 2
    for slot in range(first, first + 5):
        ring.put(slot, 0.5, row(float(slot)))
    assert ring.column(1, first, 5) == [slot + 1.0 for slot in range(first, first + 5)]
    assert ring.elapsed(first - 1, 7) == [0.0, *[0.5] * 5, 0.0]


def test_more_than_an_hour_is_not_read() -> None:
    with pytest.raises(ValueError, match="3601 seconds"):
        Ring().column(0, 0, HISTORY_SECONDS + 1)


def test_the_next_worker_finds_everything(tmp_path: Path) -> None:
    before = opened(tmp_path / "ring")
    assert not before.is_continued
    before.put(50, 1.25, row(3.0))
    before.remember(50, 50.25, [float(number) for number in range(len(RATES))])
    before.write_marks(b"marks")
    before.count_engine_restart()
    after = opened(tmp_path / "ring")
    assert after.is_continued
    assert after.row(50) == row(3.0)
    assert (after.last_slot, after.last_time) == (50, 50.25)
    assert list(after.last_totals) == [float(number) for number in range(len(RATES))]
    assert after.read_marks() == b"marks"
    assert (before.starts, after.starts, after.engine_restarts) == (2, 2, 1)


def test_memory_of_another_version_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    opened(path).put(5, 1.0, row(1.0))
    with path.open("r+b") as file:
        file.seek(10)
        file.write(b"another")
    after = opened(path)
    assert not after.is_continued
    assert after.row(5) is None
    assert after.starts == 1


def test_memory_that_cannot_be_filled_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        Ring(os.open("/dev/full", os.O_RDWR))


def test_no_value_stays_no_value() -> None:
    ring = Ring()
    ring.put(1, 1.0, [math.nan] * len(HISTORY))
    found = ring.row(1)
    assert found is not None
    assert all(math.isnan(value) for value in found)


def test_a_column_is_amended() -> None:
    ring = Ring()
    ring.put(9, 1.0, row(0.0))
    ring.amend(9, 2, 42.0)
    assert ring.column(2, 9, 1) == [42.0]


def test_marks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Ring().write_marks(bytes(MARKS_BYTES))
