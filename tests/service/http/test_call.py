"""A request as routes see it: what it answers with counts, and its body has a bound."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from service.errors import OverloadedError
from service.http.call import HttpCall
from service.http.scope import EXCHANGE
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from tests.service.http.apps import CHAT, client_of


def call_in(room: UploadRoom) -> HttpCall:
    record = RequestRecord("req_1", "models", "GET", "/v1/models", time.monotonic(), 0)
    exchange = Exchange(record, NoTelemetry(), answer_room=room)
    scope: Any = {"type": "http", "headers": [], "state": {EXCHANGE: exchange}}
    return HttpCall(scope)


def test_an_answer_is_a_success_that_names_its_request_and_counts_until_it_is_sent() -> None:
    room = UploadRoom(1000)
    call = call_in(room)
    body = b"[" + b" " * (FREE_BYTES + 498) + b"]"
    response = call.answer(body)
    assert (response.status_code, response.content) == (200, body)
    assert response.media_type == "application/json"
    assert response.headers["x-request-id"] == "req_1"
    assert (call.exchange.record.outcome, call.exchange.record.status) == ("stop", 200)
    assert room.held == 500
    call.exchange.close()
    assert room.held == 0


def test_an_answer_without_room_is_not_a_success() -> None:
    room = UploadRoom(1000)
    first, second = call_in(room), call_in(room)
    first.answer(bytes(FREE_BYTES + 900))
    with pytest.raises(OverloadedError):
        second.answer(bytes(FREE_BYTES + 200))
    assert second.exchange.record.outcome == ""
    second.answer(b"{}")  # a small one is always let through
    for call in (first, second):
        call.exchange.close()
    assert room.held == 0


def test_a_body_is_read_up_to_the_limit_that_is_set(own_template: Path, tmp_path: Path) -> None:
    with client_of(own_template, tmp_path, max_body_bytes=1024) as client:
        body = b"{}" + b" " * 1022
        assert client.post(CHAT, content=body).status_code == 400  # no messages
        reply = client.post(CHAT, content=body + b" ")
        assert reply.status_code == 413
        assert "1024" in reply.json()["error"]["message"]
