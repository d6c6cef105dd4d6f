"""When a dead child is started again."""

from __future__ import annotations

from service.supervision.restarts import (
    DELAY_AFTER_PROGRESS_SECONDS,
    FIRST_DELAY_SECONDS,
    LONGEST_DELAY_SECONDS,
    RestartPolicy,
)


def test_deaths_without_progress_double_the_wait_up_to_a_bound_for_ever() -> None:
    policy = RestartPolicy()
    delays = [policy.delay_after(progress=False) for _ in range(5000)]
    assert delays[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert delays[-1] == LONGEST_DELAY_SECONDS
    assert delays == sorted(delays)


def test_a_child_that_got_something_done_is_started_again_at_once_as_often_as_it_takes() -> None:
    policy = RestartPolicy()
    for _ in range(4):
        policy.delay_after(progress=False)
    for _ in range(50):
        assert policy.delay_after(progress=True) == DELAY_AFTER_PROGRESS_SECONDS
    assert policy.fruitless_deaths == 0
    assert policy.delay_after(progress=False) == FIRST_DELAY_SECONDS
