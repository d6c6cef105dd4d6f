"""A message of a connection: what it may take until it is answered, and what is read of it."""

from __future__ import annotations

import json

import pytest

from service.errors import BodyTooLargeError, InvalidRequestError, OverloadedError
from service.http.responses.message import SocketMessage
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import FREE_BYTES, UploadRoom

CREATE = json.dumps({"type": "response.create"})


def message(room: UploadRoom, text: str, limit: int = 1 << 20) -> SocketMessage:
    return SocketMessage(room, ANYBODY, {"text": text}, limit)


def test_a_message_counts_until_its_bytes_are_taken() -> None:
    room = UploadRoom(1500)
    text = CREATE + " " * (FREE_BYTES + 1000 - len(CREATE))
    first, second = message(room, text), message(room, text)
    assert first.envelope().type == "response.create"
    assert room.held == 1000
    with pytest.raises(OverloadedError):
        second.envelope()
    assert first.take() == text.encode()
    assert room.held == 0
    assert second.take() == b""


def test_a_message_that_is_too_large_is_dropped() -> None:
    room = UploadRoom(1500)
    large = message(room, " " * 101, limit=100)
    with pytest.raises(BodyTooLargeError):
        large.envelope()
    assert (room.held, large.take()) == (0, b"")


@pytest.mark.parametrize(
    ("text", "says", "param"),
    [
        ("{", "not valid JSON", None),
        ("", "not valid JSON", None),
        ("[" * 100_000, "JSON", None),
        ("[]", "must be a JSON object", None),
        ('{"type": 5}', "must be a JSON object", None),
        ("{}", "'response.create'", "type"),
        ('{"type": "response.cancel"}', "'response.cancel' is not supported", "type"),
        (
            json.dumps({"type": "response.create", "stream_id": "x" * 257}),
            "at most 256",
            "stream_id",
        ),
    ],
    ids=["cut", "empty", "deep", "list", "number", "no type", "other type", "long lane"],
)
def test_an_invalid_request_is_refused_by_name(text: str, says: str, param: str | None) -> None:
    with pytest.raises(InvalidRequestError, match=says) as refused:
        message(UploadRoom(1500), text).envelope()
    assert refused.value.param == param


@pytest.mark.parametrize("form", ["text", "bytes"])
def test_a_byte_order_mark_is_left_out(form: str) -> None:
    marked = "\ufeff" + CREATE
    event = {"text": marked} if form == "text" else {"bytes": marked.encode()}
    came = SocketMessage(UploadRoom(1500), ANYBODY, event, 1 << 20)
    assert came.envelope().type == "response.create"
    assert came.take() == CREATE.encode()


def test_a_message_in_utf_16_is_refused() -> None:
    room = UploadRoom(1500)
    came = SocketMessage(room, ANYBODY, {"bytes": CREATE.encode("utf-16")}, 1 << 20)
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        came.envelope()
    assert room.held == 0


@pytest.mark.parametrize("form", ["text", "bytes"])
def test_text_and_bytes_are_read_in_the_same_way(form: str) -> None:
    text = json.dumps(
        {"type": "response.create", "stream_id": "x" * 256, "generate": False, "input": ["…"]}
    )
    event = {"text": text} if form == "text" else {"text": None, "bytes": text.encode()}
    came = SocketMessage(UploadRoom(1500), ANYBODY, event, 1 << 20)
    envelope = came.envelope()
    assert (envelope.stream_id, envelope.generate) == ("x" * 256, False)
    assert envelope.previous_response_id is None
    assert came.take() == text.encode()
