"""The times of a shutdown are bounded, and there is no delay by default."""

from __future__ import annotations

import msgspec
import pytest

from service.settings import ServiceSettings


@pytest.mark.parametrize("name", ["drain_delay", "drain_timeout"])
@pytest.mark.parametrize("seconds", [-1.0, 1e9])
def test_a_time_out_of_bounds_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert({name: seconds}, ServiceSettings)


def test_requests_are_refused_at_once_unless_a_proxy_needs_time() -> None:
    assert ServiceSettings().drain_delay == 0
