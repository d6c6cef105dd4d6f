"""How much of a prompt was read is asked of the admin API, and not again where it is not known."""

from __future__ import annotations

import json

import pytest

from dashboard.admin_client import AdminClient
from dashboard.play import prompt
from dashboard.play.prompt import PromptReading
from tests.dashboard.foreign_server import ForeignServer

PATH = "/admin/v1/requests/req_1"


@pytest.fixture
def reading(foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch) -> PromptReading:
    monkeypatch.setattr(prompt, "_LEAST_SECONDS", 0.0)
    return PromptReading(AdminClient(foreign.url))


def test_cached_and_computed_tokens_are_read(
    foreign: ForeignServer, reading: PromptReading
) -> None:
    kept = {
        "request_id": "req_1",
        "received": 1.0,
        "route": "chat_completions",
        "prompt_tokens": 1000,
        "cached_tokens": 500,
        "prompt_tokens_computed": 120,
    }
    foreign.replies[PATH] = lambda exchange: exchange.answer(200, json.dumps(kept))
    assert reading.share("") is None
    assert reading.share("req_1") == 0.62


def test_a_server_that_does_not_tell_is_asked_once(
    foreign: ForeignServer, reading: PromptReading
) -> None:
    foreign.replies[PATH] = lambda exchange: exchange.answer(401, "{}")
    assert reading.share("req_1") is None
    assert reading.share("req_1") is None
    assert foreign.requests == [f"GET {PATH}"]


def test_who_may_not_read_requests_is_told_nothing() -> None:
    assert PromptReading(None).share("req_1") is None
