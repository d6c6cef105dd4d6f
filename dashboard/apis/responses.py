"""Responses, OpenAI's newer API. Nothing is stored: the conversation goes along each time."""

from __future__ import annotations

from typing import Any

import msgspec

from dashboard.answer import Answer, BrokenStreamError, Timings, Token, Usage
from dashboard.apis.ask import TOP_LOGPROBS, Ask, Message, given
from dashboard.apis.chat import Problem


def body(ask: Ask) -> dict[str, Any]:
    wished: dict[str, Any] = {
        "model": ask.model,
        "input": [item for message in ask.messages for item in _items(message)],
        **given(
            instructions=ask.system if ask.system.strip() else "",
            temperature=ask.temperature,
            top_p=ask.top_p,
            max_output_tokens=ask.max_tokens,
            seed=ask.seed,
            stop=list(ask.stop),
            tools=[
                {
                    "type": "function",
                    "name": tool.name,
                    **given(description=tool.description),
                    "parameters": tool.parameters,
                }
                for tool in ask.tools
            ],
        ),
        "store": False,
        "stream": True,
        "timings": True,
    }
    if ask.thinking is not None:
        wished["chat_template_kwargs"] = {"enable_thinking": ask.thinking}
    if ask.schema is not None:
        schema = {"type": "json_schema", "name": "answer", "schema": ask.schema, "strict": True}
        wished["text"] = {"format": schema}
    if ask.logprobs:
        wished |= {"include": ["message.output_text.logprobs"], "top_logprobs": TOP_LOGPROBS}
    return wished


def _items(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        output = {"call_id": message.call_id, "output": message.content}
        return [{"type": "function_call_output", **output}]
    items: list[dict[str, Any]] = []
    if message.content or not message.calls:
        items.append({"role": message.role, "content": message.content})
    items += [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in message.calls
    ]
    return items


class _Likely(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0
    top_logprobs: list[_Likely] = []


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str = ""
    name: str = ""


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _InputDetails = msgspec.field(default_factory=_InputDetails)
    output_tokens_details: _OutputDetails = msgspec.field(default_factory=_OutputDetails)


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str = ""
    usage: _Usage | None = None
    timings: Timings | None = None
    error: Problem | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: str = ""
    logprobs: list[_Likely] = []
    item: _Item | None = None
    response: _Response | None = None
    message: str = ""  # of an error


_decode = msgspec.json.Decoder(_Event).decode
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def read(answer: Answer, event: str) -> None:
    """Raises as ``chat.read`` does. A call's item is followed by the pieces of its arguments, so
    they belong to the last call."""
    told = _decode(event)
    match told.type:
        case "response.output_text.delta":
            answer.say(told.delta)
            answer.tokens += [
                Token(one.token, one.logprob, tuple((o.token, o.logprob) for o in one.top_logprobs))
                for one in told.logprobs
            ]
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            answer.think(told.delta)
        case "response.output_item.added" if told.item and told.item.type == "function_call":
            item = told.item
            answer.call(len(answer.tool_calls), call_id=item.call_id, name=item.name)
        case "response.function_call_arguments.delta":
            answer.call(len(answer.tool_calls) - 1, arguments=told.delta)
        case "error":
            raise BrokenStreamError(f"The server reported an error: {told.message}")
        case ended if ended in _ENDS and told.response is not None:
            _end(answer, told.response)


def _end(answer: Answer, response: _Response) -> None:
    if response.usage is not None:
        usage = response.usage
        answer.usage = Usage(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
    answer.measure(response.timings)
    if response.error is not None:
        raise BrokenStreamError(f"The server reported an error: {response.error.message}")
    cut = response.incomplete_details
    answer.finish_reason = (cut.reason if cut else None) or response.status
