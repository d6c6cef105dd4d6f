"""A step that takes long is reported while it may run, and never after."""

from __future__ import annotations

import math

from engine.loop.long_steps import ALLOWED_SECONDS, REPORT_SECONDS, LongSteps


class Watched:
    def __init__(self, allowed: float = 0.0) -> None:
        self.now = 100.0
        self.reported: list[float] = []
        self.steps = LongSteps(self.reported.append, lambda: allowed, lambda: self.now)

    def look_after(self, seconds: float) -> None:
        self.now += seconds
        self.steps.look()


def test_an_idle_engine_and_a_short_step_are_not_reported() -> None:
    watched = Watched()
    watched.look_after(5.0)
    watched.steps.step_begins()
    watched.look_after(REPORT_SECONDS / 2)
    watched.steps.step_ended()
    watched.look_after(5.0)
    assert watched.reported == []


def test_a_long_step_is_reported_until_it_has_taken_longer_than_it_may() -> None:
    watched = Watched()
    watched.steps.step_begins()
    for _ in range(100):
        watched.look_after(REPORT_SECONDS)
    assert watched.reported == [float(n) for n in range(1, int(ALLOWED_SECONDS) + 1)]
    watched.steps.step_ended()
    watched.steps.step_begins()
    watched.look_after(2.0)
    assert watched.reported[-1] == 2.0


def test_a_step_is_reported_longer_where_earlier_ones_were_slow() -> None:
    for allowed, reports in ((5.0, 30), (80.0, 80), (math.inf, 200)):
        watched = Watched(allowed)
        watched.steps.step_begins()
        for _ in range(200):
            watched.look_after(1.0)
        assert len(watched.reported) == reports
