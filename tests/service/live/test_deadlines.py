"""A deadline over HTTP, in both vendors' shapes: a status before any byte of a stream."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.service.live.test_lifecycle import CHAT, LONG, begin, leave, outcomes, running
from tests.service.running import RunningService, until

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
USER = [{"role": "user", "content": "Hi"}]
ASKS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": USER, "max_tokens": 4},
    MESSAGES: {"model": "tiny", "messages": USER, "max_tokens": 4},
    RESPONSES: {"input": "Hi", "max_output_tokens": 4, "store": False},
}
TYPES = {
    429: {CHAT: "rate_limit_error", MESSAGES: "rate_limit_error", RESPONSES: "rate_limit_error"},
    504: {CHAT: "timeout", MESSAGES: "timeout_error", RESPONSES: "timeout"},
}
CODES = {429: "deadline_unreachable", 504: "deadline_exceeded"}


@pytest.fixture(scope="module")
def narrow(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service that runs one sequence at a time."""
    folder = tmp_path_factory.mktemp("narrow")
    with RunningService(tiny_model, folder, engine_args=("--max-num-seqs", "1")) as service:
        yield service


@contextmanager
def occupied(service: RunningService, streams: int) -> Iterator[None]:
    """Its only slot is taken, and all streams but one wait for it."""
    holders = [begin(service, {**LONG, "stream": True}) for _ in range(streams)]
    try:
        until(lambda: running(service) == 1, 30, "the slot to be taken")
        yield
    finally:
        for holder in holders:
            leave(holder)
        until(lambda: running(service) == 0, 30, "the slot to be free again")


def ask(
    service: RunningService, path: str, seconds: float, **fields: Any
) -> tuple[int, str, dict[str, Any]]:
    """Return the status, the content type and the error."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"x-request-timeout": str(seconds), "content-type": "application/json"}
    connection.request("POST", path, json.dumps({**ASKS[path], **fields}), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, response.getheader("content-type", ""), answer.get("error") or {}


def check_shape(path: str, status: int, kind: str, error: dict[str, Any]) -> None:
    assert kind.startswith("application/json")
    assert error["type"] == TYPES[status][path]
    if path != MESSAGES:
        assert error["code"] == CODES[status]
    assert "deadline" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKS)
def test_a_deadline_that_passes_in_the_queue_is_a_504_before_any_byte_of_a_stream(
    narrow: RunningService, path: str, stream: bool
) -> None:
    with occupied(narrow, 1):
        status, kind, error = ask(narrow, path, 0.1, stream=stream)
    assert status == 504
    check_shape(path, status, kind, error)


@pytest.mark.parametrize("path", ASKS)
def test_a_deadline_that_the_pace_cannot_meet_is_a_429_before_any_byte_of_a_stream(
    narrow: RunningService, path: str
) -> None:
    answers = []

    def refused_at_once() -> bool:
        # As long as the pace is not known, a request waits for its deadline.
        answers.append(ask(narrow, path, 0.2, stream=True))
        return answers[-1][0] == 429

    with occupied(narrow, 32):
        until(refused_at_once, 60, "the pace to be known")
    assert {status for status, _, _ in answers} <= {429, 504}
    for status, kind, error in answers:
        check_shape(path, status, kind, error)


def test_a_deadline_that_is_met_changes_nothing(narrow: RunningService) -> None:
    for path in ASKS:
        assert ask(narrow, path, 60)[::2] == (200, {})


def test_the_metrics_count_both(narrow: RunningService) -> None:
    found = outcomes(narrow)
    assert found["refused:expired"] >= 2
    assert found["refused:deadline"] == 1
