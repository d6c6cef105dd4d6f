"""A message becomes a request's body, and a stream's events become messages."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.errors import OverloadedError
from service.http.responses.message import SocketMessage
from service.http.responses.message_exchange import EventsAsMessages, MessageAsBody
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from tests.service.at_once import at_once


async def test_a_message_is_the_whole_body_and_then_the_client_stays_until_it_leaves() -> None:
    room, left = UploadRoom(1000), asyncio.Event()
    text = "x" * (FREE_BYTES + 500)
    body = MessageAsBody(SocketMessage(room, ANYBODY, {"text": text}, 1 << 20), left)
    assert room.held == 500
    first: Any = await body.receive()
    assert (first["body"], first["more_body"], room.held) == (text.encode(), False, 0)
    waiting = asyncio.create_task(body.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    left.set()
    assert (await waiting)["type"] == "http.disconnect"


def answered(
    status: int, headers: dict[str, str], pieces: list[bytes]
) -> tuple[list[bytes], bytes | None]:
    """What is said as messages of a response that comes in these pieces, and its error."""
    said: list[bytes] = []

    async def say(data: bytes) -> None:
        said.append(data)

    async def send() -> bytes | None:
        events = EventsAsMessages(say)
        start: Any = {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await events.send(start)
        for index, piece in enumerate(pieces):
            more = index + 1 < len(pieces)
            body: Any = {"type": "http.response.body", "body": piece, "more_body": more}
            await events.send(body)
        return events.error

    error = at_once(send())
    return said, error


STREAM = (
    b'id: 0\nevent: response.created\ndata: {"type":"response.created"}\n\n'
    b": keep-alive\n\n"
    b'event: response.output_text.delta\ndata: {"delta":"a\\n\\nb: data: c"}\n\n'
    b'data: {"type":"response.completed"}\n\n'
)


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_are_said_one_by_one_however_the_stream_is_cut(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    said, error = answered(200, {"Content-Type": "text/event-stream"}, pieces)
    assert error is None
    assert [json.loads(event) for event in said] == [
        {"type": "response.created"},
        {"delta": "a\n\nb: data: c"},
        {"type": "response.completed"},
    ]


def test_a_response_that_is_not_a_stream_becomes_an_error_with_status_and_headers() -> None:
    refusal = OverloadedError("Too many.", retry_after=7)
    headers = {"content-type": "application/json", "x-secret": "no", **refusal.headers()}
    body = refusal.to_body()
    said, error = answered(429, headers, [body[:10], body[10:]])
    assert said == []
    assert error is not None
    event = json.loads(error)
    assert (event["type"], event["status"]) == ("error", 429)
    assert event["headers"]["retry-after"] == "7"
    assert "x-secret" not in event["headers"]
    assert event["error"]["message"] == "Too many."
    assert event["error"]["headers"] == event["headers"]
