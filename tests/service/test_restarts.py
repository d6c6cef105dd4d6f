"""When a dead child is started again."""

from __future__ import annotations

from service.restarts import (
    FIRST_DELAY_SECONDS,
    HEALTHY_SECONDS,
    LONGEST_DELAY_SECONDS,
    MOST_QUICK_DEATHS,
    RestartPolicy,
)


def test_each_quick_death_doubles_the_wait_until_it_gives_up() -> None:
    policy = RestartPolicy()
    delays = [policy.delay_after(1.0) for _ in range(MOST_QUICK_DEATHS)]
    assert delays[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert delays[-1] is None
    assert all(delay is not None and delay <= LONGEST_DELAY_SECONDS for delay in delays[:-1])


def test_a_child_that_lived_long_is_always_started_again() -> None:
    policy = RestartPolicy()
    for _ in range(3 * MOST_QUICK_DEATHS):
        assert policy.delay_after(HEALTHY_SECONDS) == FIRST_DELAY_SECONDS
