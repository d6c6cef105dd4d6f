"""How long a body may take: as long as a slow link needs, never as long as a dripping one wants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.serving.limits import longest_seconds

SIZES = st.integers(0, 1 << 32)
TIMEOUT = 30.0


@given(SIZES, SIZES)
def test_more_bytes_never_have_less_time(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert longest_seconds(small, TIMEOUT) <= longest_seconds(large, TIMEOUT)


@given(SIZES)
def test_no_body_has_less_than_the_time_limit_and_each_second_of_that_counts(size: int) -> None:
    assert longest_seconds(size, TIMEOUT) >= TIMEOUT
    longer = longest_seconds(size, TIMEOUT + 10)
    assert longer == pytest.approx(longest_seconds(size, TIMEOUT) + 10)


@given(SIZES)
def test_a_body_at_64_kib_a_second_always_gets_through(size: int) -> None:
    assert size / (64 * 1024) <= longest_seconds(size, TIMEOUT)


def test_a_small_body_may_come_at_a_kib_a_second_but_a_large_one_not_for_hours() -> None:
    assert longest_seconds(64 * 1024, TIMEOUT) >= 64 * 1024 / 1024
    assert longest_seconds(50 * 1024 * 1024, TIMEOUT) < 20 * 60
