"""A stream that has nothing to say for long says so, in a way that every client skips."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.service.running import RunningService

COMMENT = b": keep-alive\n\n"
MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def slow(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A token takes a second, and a fifth of one is a long silence."""
    model = f"simulated:step=1s,tokenizer={tiny_model}"
    with RunningService(
        tiny_model,
        tmp_path_factory.mktemp("slow"),
        engine_args=("--model", model),
        worker_args=("--stream-keep-alive", "0.2"),
    ) as running:
        yield running


def raw_stream(service: RunningService, path: str, body: object, **headers: str) -> list[bytes]:
    """Return its events, each with the blank line after it."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("POST", path, json.dumps(body), headers)
    events = connection.getresponse().read().split(b"\n\n")
    connection.close()
    assert events.pop() == b""
    return [event + b"\n\n" for event in events]


def test_comments_are_written_only_between_events(slow: RunningService) -> None:
    ask = {"prompt": "Hi", "max_tokens": 2, "stream": True}
    events = raw_stream(slow, "/v1/completions", ask)
    assert events.count(COMMENT) >= 2
    assert events[-1] == b"data: [DONE]\n\n"
    for event in events:
        assert event == COMMENT or event.startswith(b"data: ")


def test_comments_have_no_number_in_a_stream_that_can_be_resumed(slow: RunningService) -> None:
    ask = {"messages": MESSAGES, "max_tokens": 2, "stream": True}
    headers = {"x-quire-resumable": "true"}
    events = raw_stream(slow, "/v1/chat/completions", ask, **headers)
    numbered = [event for event in events if event != COMMENT]
    assert len(events) - len(numbered) >= 2
    for number, event in enumerate(numbered):
        assert event.startswith(b"id: %d\n" % number)


def test_the_official_clients_skip_them(slow: RunningService) -> None:
    by_openai = openai.OpenAI(base_url=f"{slow.url}/v1", api_key="unused", max_retries=0)
    chunks = list(
        by_openai.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=2, stream=True
        )
    )
    assert chunks[-1].choices[0].finish_reason == "length"
    by_anthropic = anthropic.Anthropic(base_url=slow.url, api_key="unused", max_retries=0)
    with by_anthropic.messages.stream(
        model="tiny", max_tokens=2, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"
    with by_openai.responses.stream(
        model="tiny", input="Hi", max_output_tokens=16, store=False
    ) as responses:
        events = list(responses)
    assert events[-1].type in ("response.incomplete", "response.completed")
