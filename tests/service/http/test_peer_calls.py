"""What workers ask each other for themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from service.generation.request import Generation
from service.http.peer_calls import PeerCalls
from service.peers.requests import ABORT, RESPONSE, PeerQuestion
from tests.service.serving.by_hand import loaded, services


class Running:
    """Stands for a generation that can be aborted."""

    class request:  # noqa: N801 - the attribute's name
        request_id = "req_1"

    def __init__(self) -> None:
        self.failed: list[Exception] = []

    def fail(self, error: Exception) -> None:
        self.failed.append(error)


async def asked(calls: PeerCalls, path: str, body: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await calls.serve({"path": path}, receive, send)
    return sent[0]["status"], sent[1]["body"]


def question(identity: str, owner: str) -> bytes:
    return msgspec.msgpack.encode(PeerQuestion(identity, owner))


async def test_a_call_is_aborted_for_its_owner_only() -> None:
    of = services(loaded())
    calls = PeerCalls(of)
    generation = Running()
    stands_for: Generation = generation  # type: ignore[assignment]
    with of.running.holding("owner", stands_for):
        assert await asked(calls, ABORT, question("req_1", "other")) == (404, b"")
        assert await asked(calls, ABORT, question("req_2", "owner")) == (404, b"")
        assert generation.failed == []
        assert await asked(calls, ABORT, question("req_1", "owner")) == (200, b"")
        assert len(generation.failed) == 1


async def test_a_response_that_does_not_run_here_is_not_found() -> None:
    calls = PeerCalls(services(loaded()))
    assert await asked(calls, RESPONSE, question("resp_1", "owner")) == (404, b"")


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", bytes(2_000_000), msgspec.msgpack.encode({"id": 1})]
)
async def test_what_is_not_a_question_is_an_error(body: bytes) -> None:
    calls = PeerCalls(services(loaded()))
    assert (await asked(calls, ABORT, body))[0] == 500


async def test_a_worker_that_gave_up_is_neither_answered_nor_logged() -> None:
    calls = PeerCalls(services(loaded()))
    sent: list[Any] = []
    events = iter(
        (
            {"type": "http.request", "body": b"\x82", "more_body": True},
            {"type": "http.disconnect"},
        )
    )

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message)

    with capture_logs() as lines:
        await calls.serve({"path": ABORT}, receive, send)
    assert sent == lines == []


def test_only_what_workers_ask_is_answered() -> None:
    calls = PeerCalls(services(loaded()))
    assert calls.has(ABORT)
    assert calls.has(RESPONSE)
    assert not calls.has("/v1/models")
