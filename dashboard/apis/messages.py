"""Messages, Anthropic's API."""

from __future__ import annotations

from typing import Any

import msgspec

from dashboard.answer import Answer, BrokenStreamError, Timings, Usage
from dashboard.apis.ask import Ask, Message, arguments_of, given
from dashboard.apis.chat import Problem

_MOST_TOKENS = 512  # where none is set: the API demands a limit
_LEAST_THINKING = 1024  # what the API allows


def body(ask: Ask) -> dict[str, Any]:
    most = ask.max_tokens or _MOST_TOKENS
    wished: dict[str, Any] = {
        "model": ask.model,
        "max_tokens": most,
        "messages": [_message(message) for message in ask.messages],
        **given(
            system=ask.system if ask.system.strip() else "",
            temperature=ask.temperature,
            top_p=ask.top_p,
            stop_sequences=list(ask.stop),
            tools=[
                {
                    "name": tool.name,
                    **given(description=tool.description),
                    "input_schema": tool.parameters,
                }
                for tool in ask.tools
            ],
        ),
        "stream": True,
        "timings": True,
    }
    if ask.thinking is not None:
        wished["thinking"] = _thinking(ask.thinking, most)
    if ask.schema is not None:
        wished["output_config"] = {"format": {"type": "json_schema", "schema": ask.schema}}
    return wished


def _thinking(wanted: bool, most: int) -> dict[str, Any]:
    if not wanted:
        return {"type": "disabled"}
    if most <= _LEAST_THINKING:
        return {"type": "adaptive"}
    return {"type": "enabled", "budget_tokens": _LEAST_THINKING}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.content}
        return {"role": "user", "content": [block]}
    if not message.calls:
        return {"role": message.role, "content": message.content}
    blocks: list[dict[str, Any]] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}
        for call in message.calls
    ]
    return {"role": message.role, "content": blocks}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    timings: Timings | None = None
    error: Problem | None = None


_decode = msgspec.json.Decoder(_Event).decode


def read(answer: Answer, event: str) -> None:
    """Raises as ``chat.read`` does. A call's block is followed by the pieces of its input alone, so
    they belong to the last call."""
    told = _decode(event)
    if told.error is not None:
        raise BrokenStreamError(f"The server reported an error: {told.error.message}")
    if told.message is not None:
        _count(answer, told.message.usage)
    if told.content_block is not None:
        block = told.content_block
        answer.think(block.thinking)
        answer.say(block.text)
        if block.type == "tool_use":
            answer.call(len(answer.tool_calls), call_id=block.id, name=block.name)
    if told.delta is not None:
        answer.think(told.delta.thinking)
        answer.say(told.delta.text)
        if told.delta.partial_json:
            answer.call(len(answer.tool_calls) - 1, arguments=told.delta.partial_json)
        answer.finish_reason = told.delta.stop_reason or answer.finish_reason
    if told.usage is not None:
        _count(answer, told.usage)
    answer.measure(told.timings)


def _count(answer: Answer, usage: _Usage) -> None:
    """Its input tokens leave out the cached ones."""
    before = answer.usage or Usage()
    prompt, cached = before.prompt_tokens, before.cached_tokens
    if usage.input_tokens is not None:
        cached = usage.cache_read_input_tokens
        written = usage.cache_creation_input_tokens or 0
        prompt = usage.input_tokens + (cached or 0) + written
    answer.usage = Usage(prompt, usage.output_tokens, cached)
