"""The time limit that a client sends by header."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.http.deadline import deadline_of


def scope(**headers: str) -> Any:
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return {"headers": pairs, "state": {}}


def test_the_deadline_counts_from_the_arrival_of_the_request() -> None:
    assert deadline_of(scope(x_request_timeout="2.5"), 100.0) == 102.5
    assert deadline_of(scope(), 100.0) is None


def test_the_time_limit_of_the_vendors_clients_is_no_deadline() -> None:
    assert deadline_of(scope(x_stainless_timeout="600"), 100.0) is None


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "86401", "1e400"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="number of seconds") as caught:
        deadline_of(scope(x_request_timeout=text), 100.0)
    assert caught.value.param == "x-request-timeout"
