"""The response object is what the SDK declares, in every state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.messages import SamplingParams
from service.wire.responses.request import ResponsesRequest, decode_responses
from service.wire.responses.response_object import echoed_fields, unprompted_events

CHECKED_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def request(**fields: Any) -> ResponsesRequest:
    return decode_responses(json.dumps({"input": "x", **fields}).encode())


def events(sent: bytes) -> list[dict[str, Any]]:
    blocks = [block.split("\n") for block in sent.decode().split("\n\n")[:-1]]
    found = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name for name, _ in blocks] == [f"event: {event['type']}" for event in found]
    return found


def test_a_response_without_a_prompt_is_created_and_completed() -> None:
    asked = request(instructions="Be brief.", metadata={"a": "b"}, reasoning={"effort": "low"})
    params = SamplingParams(max_tokens=1, temperature=0.25, top_p=0.5)
    sent = unprompted_events(
        asked, params, response_id="resp_1", created=7, model="m", ignored=["foo"]
    )
    found = events(sent)
    assert [event["type"] for event in found] == ["response.created", "response.completed"]
    assert [event["sequence_number"] for event in found] == [0, 1]
    for event in found:
        CHECKED_EVENT.validate_python(event, strict=True)
    created, completed = (Response.model_validate(event["response"]) for event in found)
    assert (created.status, created.usage) == ("in_progress", None)
    assert (completed.status, completed.output) == ("completed", [])
    assert completed.usage is not None
    assert completed.usage.total_tokens == 0
    assert (completed.id, completed.created_at, completed.model) == ("resp_1", 7, "m")
    assert (completed.instructions, completed.metadata) == ("Be brief.", {"a": "b"})
    assert (completed.temperature, completed.top_p) == (0.25, 0.5)
    assert found[0]["response"]["ignored"] == ["foo"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("instructions", "Be brief."), ("metadata", {"a": "b"}), ("tool_choice", "required")],
)
def test_fields_of_the_request_are_repeated_as_they_were(field: str, value: object) -> None:
    echoed = echoed_fields(request(**{field: value}))
    assert json.loads(getattr(echoed, field)) == value


def test_fields_that_were_left_out_have_their_defaults() -> None:
    echoed = echoed_fields(request())
    assert (echoed.instructions, echoed.metadata, echoed.tool_choice) == (b"null", b"{}", b'"auto"')
    assert json.loads(echoed.tools) == []
    assert json.loads(echoed.text)["format"] == {"type": "text"}
