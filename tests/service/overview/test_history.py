from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from observability.admin_api import Series
from observability.history import HISTORY, Coarse
from service.overview.history import (
    MAX_MARK_CHARS,
    MAX_MARKS,
    MAX_VALUES,
    LastHour,
    UnknownColumnError,
)
from service.overview.ring import COLUMN_NUMBERS, HISTORY_SECONDS, Ring
from tests.examples import examples

OFFSET = 1_700_000_000.0  # of the wall clock
RATE, LAST, MAX, MIN = "tokens_out", "running", "waiting", "condition"


class Clock:
    now = 10_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return OFFSET + self.now


def history(ring: Ring | None = None) -> tuple[LastHour, Clock]:
    clock = Clock()
    return LastHour(ring or Ring(), now=clock.monotonic, wall=clock.wall), clock


def put(to: LastHour, slot: int, elapsed: float = 1.0, **values: float) -> None:
    row = [values.get(column.name, math.nan) for column in HISTORY]
    to.ring.put(slot, elapsed, row)
    to.ring.remember(slot, slot + 0.002, to.ring.last_totals)


def series(of: LastHour, *names: str, **asked: float) -> Series:
    return asyncio.run(of.series(names, **asked))


def test_each_second_is_a_sample_and_a_missing_one_is_none() -> None:
    kept, clock = history()
    put(kept, 9_997, tokens_out=3.0)
    put(kept, 9_999, tokens_out=5.0)
    clock.now = 10_000.0
    found = series(kept, RATE, begin=OFFSET + 9_996)
    assert (found.start, found.step) == (OFFSET + 9_996, 1.0)
    assert found.values == {RATE: (None, 3.0, None, 5.0)}


def test_without_a_begin_it_is_the_last_hour() -> None:
    kept, _ = history()
    put(kept, 9_999, running=1.0)
    found = series(kept, LAST)
    assert len(found.values[LAST]) == HISTORY_SECONDS
    assert found.values[LAST][-1] == 1.0


def test_a_longer_step_shows_a_gauge_as_its_column_says() -> None:
    kept, _ = history()
    for slot, value in enumerate((1.0, 7.0, 2.0), 9_990):
        put(kept, slot, tokens_out=value, running=value, waiting=value, condition=value)
    found = series(kept, RATE, LAST, MAX, MIN, begin=OFFSET + 9_990, step=3)
    values = {name: value[0] for name, value in found.values.items()}
    assert values == {RATE: 10 / 3, LAST: 2.0, MAX: 7.0, MIN: 1.0}


def test_every_rate_is_aggregated_as_a_mean() -> None:
    for column in HISTORY:
        assert (column.coarse is Coarse.MEAN) >= (column.sampled.name == "RATE"), column.name


def test_steps_begin_at_multiples_of_themselves() -> None:
    kept, _ = history()
    for slot in range(9_900, 10_000):
        put(kept, slot, running=float(slot))
    once = series(kept, LAST, begin=OFFSET + 9_913, step=10)
    later = series(kept, LAST, begin=OFFSET + 9_917, step=10)
    assert once.start == later.start == OFFSET + 9_910
    assert once.values[LAST][0] == 9_919.0


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.floats(0.5, 3.0), st.floats(0, 1e6)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 30),
)
def test_a_rate_times_its_seconds_is_what_was_counted(
    samples: list[tuple[int, float, float]], step: int
) -> None:
    """Also where seconds are missing or were longer than one."""
    kept, _ = history()
    slot, counted, weight = 9_000, {}, {}
    for skip, elapsed, growth in samples:
        slot += skip
        put(kept, slot, elapsed, tokens_out=growth / elapsed)
        counted[slot // step] = counted.get(slot // step, 0.0) + growth
        weight[slot // step] = weight.get(slot // step, 0.0) + elapsed
    found = series(kept, RATE, begin=OFFSET + 9_001, step=step)
    first = round(found.start - OFFSET) // step
    for number, value in enumerate(found.values[RATE], first):
        if number not in counted:
            assert value is None
        else:
            assert value is not None
            assert math.isclose(value * weight[number], counted[number], abs_tol=1e-6)


def test_an_answer_has_at_most_so_many_values_whatever_was_asked() -> None:
    kept, _ = history()
    put(kept, 9_999, running=1.0)
    found = series(kept)
    assert set(found.values) == set(COLUMN_NUMBERS)
    assert sum(map(len, found.values.values())) <= MAX_VALUES + len(HISTORY)
    assert found.step == 4.0


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    kept, _ = history()
    with pytest.raises(UnknownColumnError, match="no series 'speed'; there are tokens_out"):
        series(kept, "speed")


@pytest.mark.parametrize(("begin", "end"), [(0.0, 1.0), (OFFSET + 20_000, OFFSET + 30_000)])
def test_a_time_that_the_history_does_not_have_is_empty(begin: float, end: float) -> None:
    kept, _ = history()
    put(kept, 9_999, running=1.0)
    assert set(series(kept, LAST, begin=begin, end=end).values[LAST]) <= {None}


def test_marks_are_sent_with_the_time_they_belong_to() -> None:
    kept, clock = history()
    clock.now = 9_950.0
    kept.mark("drain", "drain began")
    clock.now = 9_990.0
    kept.mark("restart", "engine restarted" * 50)
    put(kept, 9_999, running=1.0)
    clock.now = 10_000.0
    (mark,) = series(kept, LAST, begin=OFFSET + 9_980).marks
    assert (mark.time, mark.kind, len(mark.text)) == (OFFSET + 9_990, "restart", MAX_MARK_CHARS)


def test_only_the_last_marks_are_kept() -> None:
    kept, clock = history()
    for number in range(MAX_MARKS + 50):
        clock.now += 1
        kept.mark("setting", "Ü" * MAX_MARK_CHARS + str(number))
    assert 0 < len(kept.marks(0.0, math.inf)) <= MAX_MARKS
    assert kept.marks(0.0, math.inf)[-1].time == clock.wall()


def test_marks_outlive_a_worker_and_half_written_ones_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "ring"

    def ring() -> Ring:
        return Ring(os.open(path, os.O_RDWR | os.O_CREAT))

    kept, _ = history(ring())
    kept.mark("drain", "drain began")
    again, _ = history(ring())
    assert [mark.kind for mark in again.marks(0.0, math.inf)] == ["drain"]
    again.ring.write_marks(b"\x93half")
    third, _ = history(ring())
    assert third.marks(0.0, math.inf) == ()


def test_the_newest_second_by_name() -> None:
    kept, _ = history()
    assert kept.newest() is None
    put(kept, 9_999, running=4.0)
    newest = kept.newest()
    assert newest is not None
    assert (newest["running"], newest["ttft_p50"]) == (4.0, None)
    assert kept.rate("running", 5) == 4.0
    assert kept.values("running", 5) == [4.0]


@pytest.mark.parametrize("step", [1, 7, 901, 3600])
def test_a_column_read_in_pieces_is_that_read_at_once(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, clock = history()
    for slot in range(10_000 - HISTORY_SECONDS, 10_000):
        if slot % 13:
            put(kept, slot, 1.0 + slot % 3 / 10, tokens_out=float(slot), waiting=slot % 101)
    clock.now = 10_000.0
    monkeypatch.setattr("service.overview.history._PIECE_SECONDS", 10**9)
    whole = series(kept, RATE, MAX, step=step)
    monkeypatch.setattr("service.overview.history._PIECE_SECONDS", 10)
    assert series(kept, RATE, MAX, step=step) == whole
    assert sum(value is not None for value in whole.values[RATE]) > 3000 // step
