"""Lines that strangers trigger are bounded, and those left out are counted."""

from __future__ import annotations

from service.telemetry.line_budget import LINES_AT_ONCE, LINES_PER_SECOND, LineBudget


def test_lines_beyond_the_budget_are_left_out_until_time_has_passed() -> None:
    now = 100.0
    budget = LineBudget(lambda: now)
    assert all(budget.take() for _ in range(LINES_AT_ONCE))
    assert not any(budget.take() for _ in range(7))
    assert (budget.left_out(), budget.left_out()) == (7, 0)
    now += 2 / LINES_PER_SECOND
    assert [budget.take() for _ in range(3)] == [True, True, False]
    now += 3600
    assert sum(budget.take() for _ in range(2 * LINES_AT_ONCE)) == LINES_AT_ONCE
