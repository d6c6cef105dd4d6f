"""The routes of APIs that generate stay short: what they share is in one place."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from service.http.chat import chat_completions
from service.http.completions import completions
from service.http.messages import messages
from service.http.serve import serve

MOST_LINES = 15


@pytest.mark.parametrize(
    "function",
    [*(route.fn for route in (chat_completions, completions, messages)), serve],
    ids=lambda function: function.__name__,
)
def test_a_route_reads_in_fifteen_lines(function: Any) -> None:
    assert len(inspect.getsource(function).splitlines()) <= MOST_LINES
