"""Chat Completions, as OpenAI's API and most servers have it."""

from __future__ import annotations

from typing import Any

import msgspec

from dashboard.answer import Answer, BrokenStreamError, Timings, Token, Usage
from dashboard.apis.ask import TOP_LOGPROBS, Ask, Message, given


def body(ask: Ask) -> dict[str, Any]:
    messages = [{"role": "system", "content": ask.system}] if ask.system.strip() else []
    messages += [_message(message) for message in ask.messages]
    wished: dict[str, Any] = {
        "model": ask.model,
        "messages": messages,
        **given(
            temperature=ask.temperature,
            top_p=ask.top_p,
            max_tokens=ask.max_tokens,
            seed=ask.seed,
            stop=list(ask.stop),
            tools=[_tool(tool.name, tool.description, tool.parameters) for tool in ask.tools],
        ),
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings": True,
    }
    if ask.thinking is not None:
        wished["chat_template_kwargs"] = {"enable_thinking": ask.thinking}
    if ask.schema is not None:
        schema = {"name": "answer", "schema": ask.schema, "strict": True}
        wished["response_format"] = {"type": "json_schema", "json_schema": schema}
    if ask.logprobs:
        wished |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
    return wished


def _message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.call_id:
        told["tool_call_id"] = message.call_id
    return told


def _tool(name: str, description: str, parameters: Any) -> dict[str, Any]:
    function = {"name": name, **given(description=description), "parameters": parameters}
    return {"type": "function", "function": function}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None  # the name other servers give it
    tool_calls: list[_ToolCall] | None = None


class _Likely(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[_Likely] = []


class _Logprobs(msgspec.Struct):
    content: list[_Likely] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class ChatUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None

    def told(self) -> Usage:
        cached, reasoned = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            None if cached is None else cached.cached_tokens,
            None if reasoned is None else reasoned.reasoning_tokens,
        )


class Problem(msgspec.Struct):
    message: str = "the server gave no reason"


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: ChatUsage | None = None
    timings: Timings | None = None
    error: Problem | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


def read(answer: Answer, event: str) -> None:
    """Raises msgspec.DecodeError when a field has another type, and BrokenStreamError when the
    server reports an error."""
    chunk = _decode(event)
    for choice in chunk.choices[:1]:
        _grow(answer, choice.delta)
        if choice.logprobs is not None:
            answer.tokens += [
                Token(one.token, one.logprob, tuple((o.token, o.logprob) for o in one.top_logprobs))
                for one in choice.logprobs.content or ()
            ]
        answer.finish_reason = choice.finish_reason or answer.finish_reason
    if chunk.usage is not None:
        answer.usage = chunk.usage.told()
    answer.measure(chunk.timings)
    if chunk.error is not None:
        raise BrokenStreamError(f"The server reported an error: {chunk.error.message}")


def _grow(answer: Answer, delta: _Delta) -> None:
    answer.think(delta.reasoning or delta.reasoning_content or "")
    answer.say(delta.content or "")
    for call in delta.tool_calls or ():
        function = call.function or _Function()
        answer.call(
            call.index,
            call_id=call.id or "",
            name=function.name or "",
            arguments=function.arguments or "",
        )
