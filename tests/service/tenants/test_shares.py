"""Each owner has an equal share, and one is left free for the next owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tenants.shares import share


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
