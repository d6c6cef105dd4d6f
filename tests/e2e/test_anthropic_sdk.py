"""The official Anthropic SDK against the product as a user starts it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic.tools import BetaLocalFilesystemMemoryTool
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.e2e.quire_server import QuireServer

HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ASK: dict[str, Any] = {"model": "pocket", "max_tokens": 300}
THINK: dict[str, Any] = {
    "max_tokens": 1500,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}
TWO_CITIES: list[Any] = [{"role": "user", "content": "What's the weather in Paris and London?"}]

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture
def claude(server: QuireServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)


def events_of(server: QuireServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The stream's events, read without any SDK."""
    with httpx2.stream(
        "POST", f"{server.url}/v1/messages", json={**ASK, **body, "stream": True}, timeout=60
    ) as reply:
        text = "".join(reply.iter_text())
    found = []
    for event in text.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def streamed(claude: anthropic.Anthropic, **more: Any) -> anthropic.types.Message:
    with claude.messages.stream(**{**ASK, **more}) as stream:
        return stream.get_final_message()


def without_id(message: anthropic.types.Message) -> dict[str, Any]:
    """What two answers to one question share; the second finds the prompt cached."""
    found = message.model_dump(exclude={"id", "usage", "parsed_output"})
    for block in found["content"]:
        if block["type"] == "tool_use":
            block.pop("id")
        block.pop("parsed_output", None)
    return found


@pytest.mark.parametrize(
    "more",
    [
        {"messages": HELLO},
        {"messages": HELLO, **THINK},
        {"messages": TWO_CITIES, "tools": [WEATHER]},
        {"messages": TWO_CITIES, "tools": [WEATHER], **THINK},
        {"messages": [{"role": "user", "content": "Tell me a story."}], "stop_sequences": ["a"]},
        {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 7},
    ],
    ids=["hello", "thinking", "tools", "thinking and tools", "stop sequence", "cut"],
)
def test_the_sdk_s_accumulated_stream_equals_the_whole_message(
    claude: anthropic.Anthropic, more: dict[str, Any]
) -> None:
    whole = claude.messages.create(**{**ASK, **more})
    accumulated = streamed(claude, **more)
    assert without_id(accumulated) == without_id(whole)
    total = [
        message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
        for message in (whole, accumulated)
    ]
    assert total[0] == total[1]
    assert accumulated.usage.output_tokens == whole.usage.output_tokens


def test_every_streamed_event_is_one_of_the_sdk_s_own(server: QuireServer) -> None:
    events = events_of(server, {"messages": TWO_CITIES, "tools": [WEATHER], **THINK})
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    for event in events:
        if event["type"] != "ping":
            _EVENT.validate_python(event, strict=True)
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == list(range(len(starts)))
    assert [event["content_block"]["type"] for event in starts] == [
        *("thinking", "tool_use", "tool_use")
    ]


def test_a_tool_loop_ends_in_an_answer(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = list(TWO_CITIES)
    first = claude.messages.create(messages=messages, tools=[WEATHER], **ASK)
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Paris"}, {"city": "London"}]
    results = [
        {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": json.dumps({"temperature": degrees}),
        }
        for call, degrees in zip(calls, (18, 11), strict=True)
    ]
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    second = claude.messages.create(messages=messages, tools=[WEATHER], **ASK)
    assert second.stop_reason == "end_turn"
    [block] = second.content
    assert block.type == "text"
    assert "18" in block.text
    assert "11" in block.text


def test_the_sdk_s_tool_runner_works_without_a_thread(claude: anthropic.Anthropic) -> None:
    """It asks the server to keep the conversation, and sends it whole once that is refused."""
    degrees = {"Paris": "18", "London": "11"}

    @anthropic.beta_tool(
        name="get_weather", description=WEATHER["description"], input_schema=WEATHER["input_schema"]
    )
    def get_weather(city: str) -> str:
        return json.dumps({"temperature": degrees[city]})

    final = claude.beta.messages.tool_runner(
        messages=TWO_CITIES, tools=[get_weather], extra_body={"temperature": 0}, **ASK
    ).until_done()
    assert final.stop_reason == "end_turn"
    [block] = final.content
    assert block.type == "text"
    assert "18" in block.text
    assert "11" in block.text


def test_the_sdk_s_memory_tool_is_called_as_its_handler_expects(
    claude: anthropic.Anthropic, tmp_path: Path
) -> None:
    memory = BetaLocalFilesystemMemoryTool(base_path=str(tmp_path))
    choice: Any = {"type": "tool", "name": "memory"}
    runner = claude.beta.messages.tool_runner(
        messages=HELLO, tools=[memory], tool_choice=choice, max_iterations=1, **ASK
    )
    [message] = runner
    [call] = message.content
    assert call.type == "tool_use"
    assert call.name == "memory"
    assert call.input["command"] in ("view", "create", "str_replace", "insert", "delete", "rename")


@pytest.mark.parametrize("stream", [False, True])
def test_a_thread_is_refused_in_the_words_that_clients_look_for(
    server: QuireServer, stream: bool
) -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    body = {**ASK, "messages": HELLO, "thread": thread, "stream": stream}
    status, reply = server.post("/v1/messages", body)
    assert status == 400
    assert reply["error"]["type"] == "invalid_request_error"
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert reply["error"]["details"] == details
    count = {"model": "pocket", "messages": HELLO, "thread": thread}
    assert server.post("/v1/messages/count_tokens", count)[0] == 400


def test_a_required_tool_is_called_and_only_once_where_parallel_use_is_off(
    claude: anthropic.Anthropic,
) -> None:
    choice: Any = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    reply = claude.messages.create(messages=TWO_CITIES, tools=[WEATHER], tool_choice=choice, **ASK)
    assert [block.type for block in reply.content] == ["tool_use"]


def test_thinking_is_signed_and_must_come_back_unaltered(claude: anthropic.Anthropic) -> None:
    ask = {**ASK, **THINK}
    first = claude.messages.create(messages=HELLO, **ask)
    thinking = first.content[0]
    assert thinking.type == "thinking"
    assert thinking.signature
    more = [{"role": "user", "content": "Count to 3"}]
    history = [*HELLO, {"role": "assistant", "content": first.content}, *more]
    assert claude.messages.create(messages=history, **ask).content
    altered = [{**first.content[0].model_dump(), "thinking": "Something else."}]
    history = [*HELLO, {"role": "assistant", "content": altered}, *more]
    with pytest.raises(anthropic.BadRequestError, match="signature"):
        claude.messages.create(messages=history, **ask)


def test_counted_tokens_are_those_that_are_used(claude: anthropic.Anthropic) -> None:
    prompt: dict[str, Any] = {
        "model": "pocket",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": TWO_CITIES,
        "tools": [WEATHER],
    }
    counted = claude.messages.count_tokens(**prompt).input_tokens
    usage = claude.messages.create(max_tokens=1, **prompt).usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert counted == usage.input_tokens + read + written


def test_what_is_written_to_the_prefix_cache_is_read_from_it_the_next_time(
    claude: anthropic.Anthropic,
) -> None:
    block = {"type": "text", "text": f"{uuid.uuid4()} " * 4, "cache_control": {"type": "ephemeral"}}
    ask: dict[str, Any] = {"model": "pocket", "max_tokens": 1, "system": [block], "messages": HELLO}
    first, second = (claude.messages.create(**ask).usage for _ in range(2))
    assert (first.cache_creation_input_tokens or 0) > 0
    assert second.cache_creation_input_tokens == 0
    assert second.cache_read_input_tokens == (first.cache_creation_input_tokens or 0) + (
        first.cache_read_input_tokens or 0
    )
    plain = [{"type": "text", "text": f"{uuid.uuid4()} " * 4}]
    usage = claude.messages.create(**{**ask, "system": plain}).usage
    assert usage.cache_creation_input_tokens == 0


def test_a_limit_of_no_tokens_fills_the_prefix_cache_without_an_answer(
    claude: anthropic.Anthropic,
) -> None:
    block = {"type": "text", "text": f"{uuid.uuid4()} " * 4, "cache_control": {"type": "ephemeral"}}
    ask: dict[str, Any] = {"model": "pocket", "system": [block], "messages": HELLO}
    warmed = claude.messages.create(max_tokens=0, **ask)
    assert (warmed.content, warmed.stop_reason) == ([], "max_tokens")
    assert warmed.usage.output_tokens == 0
    assert (warmed.usage.cache_creation_input_tokens or 0) > 0
    assert claude.messages.create(max_tokens=1, **ask).usage.cache_creation_input_tokens == 0

    with claude.messages.stream(max_tokens=0, **ask) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert (final.content, final.stop_reason, final.usage.output_tokens) == ([], "max_tokens", 0)


def test_the_prompt_is_the_one_that_chat_makes(
    claude: anthropic.Anthropic, client: openai.OpenAI
) -> None:
    """Both APIs end in one conversation: system, call, result and all."""
    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    function = {k: v for k, v in WEATHER.items() if k != "input_schema"}
    chat: list[Any] = [
        {"role": "system", "content": "Be brief."},
        *TWO_CITIES,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "18"},
    ]
    tools: list[Any] = [
        {"type": "function", "function": {**function, "parameters": WEATHER["input_schema"]}}
    ]
    usage = client.chat.completions.create(
        model="pocket", messages=chat, tools=tools, max_tokens=1
    ).usage
    assert usage is not None
    used = [{"type": "tool_use", "id": "1", "name": "get_weather", "input": {"city": "Paris"}}]
    result = [{"type": "tool_result", "tool_use_id": "1", "content": "18"}]
    messages: list[Any] = [
        *TWO_CITIES,
        {"role": "assistant", "content": used},
        {"role": "user", "content": result},
    ]
    counted = claude.messages.count_tokens(
        model="pocket", system="Be brief.", messages=messages, tools=[WEATHER]
    )
    assert counted.input_tokens == usage.prompt_tokens


def test_ignored_fields_are_named_in_a_header(claude: anthropic.Anthropic) -> None:
    reply = claude.messages.with_raw_response.create(
        messages=HELLO,
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
        extra_body={"betas_of_tomorrow": True, "context_management": {"edits": []}},
        **ASK,
    )
    assert reply.headers["x-quire-ignored"] == "betas_of_tomorrow, tools.web_search"
    assert reply.headers["request-id"].startswith("req_")


def test_a_huge_token_limit_is_cut_to_the_context(claude: anthropic.Anthropic) -> None:
    ask = {**ASK, "max_tokens": 128_000}
    with claude.messages.stream(messages=HELLO, **ask) as stream:
        assert stream.get_final_message().stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": "claude-9"}, anthropic.NotFoundError, "does not exist"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            anthropic.BadRequestError,
            "image",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": ""}]}]},
            anthropic.BadRequestError,
            "cannot contain a thinking block",
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, anthropic.BadRequestError, "1024"),
        (
            {"max_tokens": 1024, "thinking": {"type": "enabled", "budget_tokens": 1024}},
            anthropic.BadRequestError,
            "greater than",
        ),
        ({"tools": [{"name": "f"}]}, anthropic.BadRequestError, "input_schema"),
        ({"tool_choice": {"type": "tool"}}, anthropic.BadRequestError, "name"),
        ({"extra_body": {"temperature": "0"}}, anthropic.BadRequestError, "temperature"),
        ({"messages": [{"role": "user", "content": "a " * 9000}]}, anthropic.BadRequestError, ""),
    ],
)
def test_bad_input_raises_the_sdk_s_own_errors(
    claude: anthropic.Anthropic,
    change: dict[str, Any],
    error: type[anthropic.APIStatusError],
    words: str,
) -> None:
    with pytest.raises(error) as caught:
        claude.messages.create(**{**ASK, "messages": HELLO, **change})
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["type"] in ("invalid_request_error", "not_found_error")
    assert words in body["error"]["message"]
    assert body["request_id"].startswith("req_")
