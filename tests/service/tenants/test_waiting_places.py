"""Places are counted by owner, and an equal share is left free for the next owner."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tenants.waiting_places import WaitingPlaces, share


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_what_waits_is_counted_as_it_comes_and_goes(steps: list[tuple[str, bool]]) -> None:
    places = WaitingPlaces()
    waiting: list[str] = []
    for owner, comes in steps:
        if comes:
            places.add(owner)
            waiting.append(owner)
        elif owner in waiting:
            places.remove(owner)
            waiting.remove(owner)
        counts = Counter(waiting)
        assert len(places) == len(waiting)
        assert {each: places.of(each) for each in "abc"} == {each: counts[each] for each in "abc"}
        assert places.owners(beside="a") == len(set(waiting) - {"a"})
        assert places.owners(beside="nobody") == len(set(waiting))


@given(st.integers(1, 10_000), st.integers(0, 100))
def test_equal_shares_leave_one_more_free_for_the_next_owner(total: int, others: int) -> None:
    each = share(total, others)
    owners = others + 1
    assert each >= 1
    if total >= owners + 1:
        assert (owners + 1) * each <= total < (owners + 1) * (each + 1)


@pytest.mark.parametrize(("total", "others", "mine"), [(100, 0, 50), (100, 1, 33), (2, 5, 1)])
def test_the_first_owner_gets_half_and_every_owner_at_least_one(
    total: int, others: int, mine: int
) -> None:
    assert share(total, others) == mine
