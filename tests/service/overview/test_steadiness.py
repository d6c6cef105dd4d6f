from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from observability.admin_api import Condition
from service.overview.steadiness import AT_ONCE, FLIP_SECONDS, HOLD_SECONDS, SteadyCondition

OF_LOAD = [one for one in Condition if one not in AT_ONCE]


def shown(found: list[Condition], first: Condition = Condition.HEALTHY) -> list[Condition]:
    """What is shown in each second."""
    steady = SteadyCondition(first, now=-100.0)
    return [steady.observe(one, float(second)) for second, one in enumerate(found)]


@given(
    st.lists(st.sampled_from([one for one in OF_LOAD if one is not Condition.IDLE]), max_size=80)
)
def test_under_load_it_changes_at_most_once_in_ten_seconds(found: list[Condition]) -> None:
    changes = [
        second
        for second, (before, after) in enumerate(itertools.pairwise(shown(found)))
        if before is not after
    ]
    assert all(later - earlier >= FLIP_SECONDS for earlier, later in itertools.pairwise(changes))


@given(st.lists(st.sampled_from(list(Condition)), max_size=80))
def test_a_state_of_the_server_is_shown_at_once(found: list[Condition]) -> None:
    for one, seen in zip(found, shown(found), strict=True):
        if one in AT_ONCE:
            assert seen is one
        else:
            assert seen not in AT_ONCE


def test_a_cause_is_shown_once_it_has_held() -> None:
    assert shown([Condition.KV] * 5) == [*[Condition.HEALTHY] * 3, Condition.KV, Condition.KV]


def test_what_comes_and_goes_is_not_shown() -> None:
    found = [Condition.KV, Condition.KV, Condition.HEALTHY] * 10
    assert set(shown(found)) == {Condition.HEALTHY}


def test_the_first_cause_after_idleness_is_not_held_back() -> None:
    found = [*[Condition.HEALTHY] * 4, *[Condition.SLOTS] * 4]
    assert shown(found, Condition.IDLE)[-1] is Condition.SLOTS


def test_a_server_that_has_work_is_not_idle() -> None:
    assert shown([Condition.HEALTHY] * 2, Condition.IDLE) == [Condition.HEALTHY] * 2
    assert shown([Condition.SLOTS] * 2, Condition.IDLE) == [Condition.HEALTHY] * 2


def test_it_began_when_the_cause_did() -> None:
    steady = SteadyCondition(Condition.HEALTHY, now=-100.0)
    for second in range(10):
        steady.observe(Condition.SLOTS, float(second))
    assert (steady.shown, steady.since) == (Condition.SLOTS, 0.0)
    assert HOLD_SECONDS < FLIP_SECONDS
