"""How fast the queue drains and prompts are computed, as measured."""

from __future__ import annotations

import pytest

from engine.schedule.pace import DrainPace, PrefillPace


def test_the_pace_is_unknown_before_two_admissions() -> None:
    pace = DrainPace()
    assert pace.per_second(1.0, waits=True) is None
    pace.note(1.0, 100)
    assert pace.per_second(2.0, waits=True) is None


def test_the_pace_falls_while_something_waits_in_vain() -> None:
    pace = DrainPace()
    for second in range(1, 11):
        pace.note(float(second), 50)
    assert pace.per_second(10.0, waits=True) == pytest.approx((1.0, 50.0))
    assert pace.per_second(20.0, waits=True) == pytest.approx((0.5, 25.0))


def test_time_in_which_nothing_waits_does_not_count() -> None:
    pace = DrainPace()
    for burst in (0.0, 4.0, 8.0):
        pace.began(burst)
        pace.note(burst + 0.5, 20)
        pace.note(burst + 1.0, 20)
    assert pace.per_second(11.0, waits=False) == pytest.approx((2.0, 40.0))


def test_old_admissions_are_forgotten() -> None:
    pace = DrainPace()
    for second in range(10):
        pace.note(float(second), 50)
    assert pace.per_second(100.0, waits=True) is None
    pace.began(100.0)
    for count in range(10_000):
        pace.note(100.0 + count / 100, 7)
    assert pace.per_second(200.0, waits=False) == pytest.approx((100.0, 700.0), rel=0.02)
    assert len(pace._noted) < 1000


def test_small_prompts_do_not_lower_the_prefill_pace() -> None:
    pace = PrefillPace()
    assert pace.tokens_per_second is None
    pace.note(1000, 0.5)
    pace.note(10, 0.1)
    assert pace.tokens_per_second == pytest.approx(2000, rel=0.01)
    pace.note(4000, 1.0)
    assert pace.tokens_per_second == 4000
