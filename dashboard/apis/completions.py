"""Completions: the model continues a text, without a chat template."""

from __future__ import annotations

from typing import Any

import msgspec

from dashboard.answer import Answer, BrokenStreamError, Timings, Token
from dashboard.apis.ask import TOP_LOGPROBS, Ask, given
from dashboard.apis.chat import ChatUsage, Problem


def body(ask: Ask) -> dict[str, Any]:
    wished: dict[str, Any] = {
        "model": ask.model,
        "prompt": ask.text,
        **given(
            temperature=ask.temperature,
            top_p=ask.top_p,
            max_tokens=ask.max_tokens,
            seed=ask.seed,
            stop=list(ask.stop),
            logprobs=TOP_LOGPROBS if ask.logprobs else None,
        ),
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings": True,
    }
    if ask.schema is not None:
        schema = {"name": "answer", "schema": ask.schema, "strict": True}
        wished["response_format"] = {"type": "json_schema", "json_schema": schema}
    return wished


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: ChatUsage | None = None
    timings: Timings | None = None
    error: Problem | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


def read(answer: Answer, event: str) -> None:
    """Raises as ``chat.read`` does."""
    chunk = _decode(event)
    for choice in chunk.choices[:1]:
        answer.say(choice.text)
        if choice.logprobs is not None:
            answer.tokens += _tokens(choice.logprobs)
        answer.finish_reason = choice.finish_reason or answer.finish_reason
    if chunk.usage is not None:
        answer.usage = chunk.usage.told()
    answer.measure(chunk.timings)
    if chunk.error is not None:
        raise BrokenStreamError(f"The server reported an error: {chunk.error.message}")


def _tokens(logprobs: _Logprobs) -> list[Token]:
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    return [
        Token(text, value, tuple(sorted((top or {}).items(), key=lambda one: -one[1])))
        for text, value, top in zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=False)
        if value is not None
    ]
