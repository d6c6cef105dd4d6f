"""However a stream ends well, its API's own last words come, once, with the reason."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.service.running import RunningService

MESSAGES = [{"role": "user", "content": "Tell me all of it"}]
# Random weights end nothing by themselves soon: the limit or a stop string does.
ENDS: dict[str, dict[str, Any]] = {
    "cut": {"ignore_eos": True},
    "stopped": {"stop": ["e", "a", "i"], "ignore_eos": True},
}
MANY = 12


def events_of(service: RunningService, path: str, body: dict[str, Any]) -> list[str]:
    asked = json.dumps({**body, "stream": True}).encode()
    status, _, reply = service.exchange("POST", path, asked)
    assert status == 200, reply
    *events, rest = reply.decode().split("\n\n")
    assert rest == ""
    return events


def data_of(event: str) -> Any:
    return json.loads(event.split("data: ", 1)[1])


def asked_by_many(service: RunningService, path: str, body: dict[str, Any]) -> list[list[str]]:
    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(lambda _: events_of(service, path, body), range(MANY)))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("usage", [False, True], ids=["", "with usage"])
@pytest.mark.parametrize(
    ("path", "prompt"),
    [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "All"})],
    ids=["chat", "completions"],
)
def test_each_choice_has_one_reason_and_then_the_stream_is_done(
    service: RunningService, path: str, prompt: dict[str, Any], usage: bool, end: dict[str, Any]
) -> None:
    body = {**prompt, "n": 2, "max_tokens": 40, "stream_options": {"include_usage": usage}, **end}
    for events in asked_by_many(service, path, body):
        assert events[-1] == "data: [DONE]"
        chunks = [data_of(event) for event in events[:-1]]
        if usage:
            last = chunks.pop()
            assert last["choices"] == []
            assert last["usage"]["completion_tokens"] > 0
        for index in range(2):
            mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
            reasons = [choice["finish_reason"] for choice in mine]
            assert reasons[-1] in ("stop", "length")
            assert not any(reasons[:-1])


@pytest.mark.parametrize("stop", [[], ["e", "a", "i"]], ids=["cut", "stopped"])
def test_a_message_has_one_reason_and_then_stops(service: RunningService, stop: list[str]) -> None:
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 40, "stop_sequences": stop}
    for events in asked_by_many(service, "/v1/messages", body):
        kinds = [event.split("\n")[0].removeprefix("event: ") for event in events]
        assert kinds.count("message_delta") == kinds.count("message_stop") == 1
        assert kinds[-2:] == ["message_delta", "message_stop"]
        assert kinds.count("content_block_start") == kinds.count("content_block_stop")
        reason = data_of(events[-2])["delta"]["stop_reason"]
        assert reason in ("end_turn", "max_tokens", "stop_sequence")


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_response_ends_in_one_last_state(service: RunningService, end: dict[str, Any]) -> None:
    body = {"input": "All of it", "max_output_tokens": 40, **end}
    for events in asked_by_many(service, "/v1/responses", body):
        told = [data_of(event) for event in events]
        assert [each["sequence_number"] for each in told] == list(range(len(told)))
        last = told[-1]
        assert last["type"] in ("response.completed", "response.incomplete")
        assert last["type"] == f"response.{last['response']['status']}"
        ends = ("response.completed", "response.incomplete", "response.failed")
        assert not any(each["type"] in ends for each in told[:-1])
        assert last["response"]["usage"]["output_tokens"] > 0
