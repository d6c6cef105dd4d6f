"""A message of a connection: what it may take until it is answered, and what is read of it."""

from __future__ import annotations

import json

import pytest

from service.errors import BodyTooLargeError, OverloadedError
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


def test_nothing_is_kept_of_a_message_that_is_too_large() -> None:
    room = UploadRoom(1500)
    large = message(room, " " * 101, limit=100)
    with pytest.raises(BodyTooLargeError):
        large.envelope()
    assert (room.held, large.take()) == (0, b"")
