"""Which child hangs, by its signs of life."""

from __future__ import annotations

import math

import pytest

from engine.beats import Page, Sign
from service.supervision.hang_watch import (
    ENGINE_TIMEOUT_SECONDS,
    Silence,
    engine_hangs,
    worker_hangs,
)

TICK = 1.0


def page(**signs: float) -> Page:
    made = Page()
    for name, value in signs.items():
        made[Sign[name]] = value
    return made


def test_silence_lasts_until_the_next_beat() -> None:
    silence = Silence(TICK)
    heard = [(5, 0), (5, 1), (5, 2), (6, 3), (6, 4)]
    assert [silence.observe(value, now) for value, now in heard] == [0, 1, 2, 0, 1]
    silence.forget()
    assert silence.observe(6, 5) == 0


def test_time_in_which_the_watcher_slept_itself_does_not_count() -> None:
    """A container that was frozen, a supervisor that was stopped."""
    silence = Silence(TICK)
    silence.observe(5, 0.0)
    assert silence.observe(5, 1.0) == 1.0
    assert silence.observe(5, 3600.0) == 1.0 + 2 * TICK


@pytest.mark.parametrize(
    ("ready_at", "silent", "timeout", "hangs"),
    [
        (9.0, 29.0, 30.0, False),
        (9.0, 30.0, 30.0, True),
        (0.0, 299.0, 30.0, False),  # it still starts
        (0.0, 300.0, 30.0, True),
        (9.0, 1e9, 0.0, False),
    ],
)
def test_a_worker_with_a_blocked_event_loop_hangs(
    ready_at: float, silent: float, timeout: float, hangs: bool
) -> None:
    assert worker_hangs(page(READY_AT=ready_at), silent, timeout) is hangs


LIMIT = ENGINE_TIMEOUT_SECONDS


@pytest.mark.parametrize(
    ("signs", "silent", "inactive", "setting", "hangs"),
    [
        ({}, LIMIT, 0.0, None, True),
        ({}, LIMIT - 1, 0.0, None, False),
        ({"ALLOWED_SECONDS": 900.0}, 899.0, 0.0, None, False),  # a long step of a large model
        ({"ALLOWED_SECONDS": 900.0}, 900.0, 0.0, None, True),
        ({"ALLOWED_SECONDS": math.inf}, 1e6, LIMIT - 1, None, False),  # its first step
        ({"ALLOWED_SECONDS": math.inf}, LIMIT, LIMIT, None, True),  # but it computes nothing
        ({"READY_AT": 0.0}, 1e6, 1e6, None, False),  # it loads
        ({"READY_AT": 0.0}, 1e6, 1e6, 5.0, False),
        ({"ALLOWED_SECONDS": 900.0}, 5.0, 0.0, 5.0, True),  # the setting is what counts
        ({}, 1e6, 1e6, 0.0, False),
    ],
)
def test_an_engine_that_gets_nowhere_hangs_but_not_one_that_loads_or_has_a_long_step(
    signs: dict[str, float], silent: float, inactive: float, setting: float | None, hangs: bool
) -> None:
    seen = page(**{"READY_AT": 1.0, **signs})
    assert engine_hangs(seen, silent, inactive, setting) is hangs
