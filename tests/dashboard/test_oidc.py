from __future__ import annotations

import math

import pytest

from dashboard.oidc import HOURS_VARIABLE, lifetime, seconds_left

NOW = 1_000_000.0


def test_a_sign_in_lasts_twelve_hours_unless_set() -> None:
    assert lifetime({}) == lifetime({HOURS_VARIABLE: " "}) == 12 * 3600
    assert lifetime({HOURS_VARIABLE: "0.5"}) == 1800


@pytest.mark.parametrize("text", ["0", "-1", "721", "nan", "inf", "long"])
def test_hours_that_end_never_or_at_once_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"above 0 and at most 720 .* not '{text}'"):
        lifetime({HOURS_VARIABLE: text})


def test_a_sign_in_ends_when_its_time_has_passed() -> None:
    assert seconds_left(NOW - 60, 3600.0, NOW) == 3540
    assert seconds_left(int(NOW) + 60, 3600.0, NOW) == 3660  # the provider's clock is ahead
    assert seconds_left(NOW - 3600, 3600.0, NOW) == 0


@pytest.mark.parametrize("issued", [None, "999999", True, math.nan, math.inf, NOW + 3600, [NOW]])
def test_one_without_a_usable_time_has_ended(issued: object) -> None:
    assert seconds_left(issued, 3600.0, NOW) == 0
