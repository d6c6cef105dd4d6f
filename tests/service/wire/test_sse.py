"""The ends of a stream, as OpenAI's own client reads them."""

from __future__ import annotations

import json

import httpx
import pytest
from openai import APIError, OpenAI, Stream
from openai.types import Completion

from service.errors import EngineFailedError
from service.wire.sse import DONE, error_event


def stream_of(body: bytes) -> Stream[Completion]:
    response = httpx.Response(200, content=body, request=httpx.Request("POST", "http://x"))
    client = OpenAI(api_key="k", base_url="http://x")
    return Stream(cast_to=Completion, response=response, client=client)


def test_the_sdk_raises_on_an_error_with_its_message() -> None:
    with pytest.raises(APIError, match="the engine died"):
        list(stream_of(error_event(EngineFailedError("the engine died"))))


def test_the_sdk_ends_quietly_at_the_end_mark() -> None:
    assert list(stream_of(DONE)) == []


def test_a_message_of_several_lines_stays_one_event() -> None:
    event = error_event(EngineFailedError("a\n\ndata: [DONE]\r\nb"))
    assert event.endswith(b"\n\n")
    assert b"\n" not in event[:-2]
    message = json.loads(event.removeprefix(b"data: "))["error"]["message"]
    assert message == "a\n\ndata: [DONE]\r\nb"
