"""One chat answer as it grows: a fold over the chunks of a Chat Completions stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec


class Ending(enum.StrEnum):
    """Why no more is coming. Anything but COMPLETE means that the answer may lack its end."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None  # the name other servers give it
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        """None when the server does not say."""
        details = self.prompt_tokens_details
        return None if details is None else details.cached_tokens


class _Problem(msgspec.Struct):
    message: str = "the server gave no reason"


class Chunk(msgspec.Struct):
    """Raises msgspec.ValidationError on decoding when a field has another type."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    error: _Problem | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


@dataclass(slots=True)
class ToolCall:
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """Times are seconds of one monotonic clock, taken where the answer is received."""

    sent: float
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    chunks: int = 0  # that brought something
    first: float | None = None
    last: float | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    ending: Ending | None = None
    error: str = ""

    def apply(self, chunk: Chunk, now: float) -> None:
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.error is not None:
            self.error = chunk.error.message
        for choice in chunk.choices[:1]:
            if self._grow(choice.delta):
                self.chunks += 1
                self.first = now if self.first is None else self.first
                self.last = now
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason

    def _grow(self, delta: _Delta) -> bool:
        reasoning = delta.reasoning or delta.reasoning_content or ""
        text = delta.content or ""
        self.reasoning += reasoning
        self.text += text
        for call in delta.tool_calls or ():
            while len(self.tool_calls) <= min(call.index, 127):
                self.tool_calls.append(ToolCall())
            target = self.tool_calls[min(max(call.index, 0), 127)]
            if call.function is not None:
                target.name += call.function.name or ""
                target.arguments += call.function.arguments or ""
        return bool(reasoning or text or delta.tool_calls)

    @property
    def time_to_first_token(self) -> float | None:
        return None if self.first is None else self.first - self.sent

    @property
    def tokens_per_second(self) -> float | None:
        """Of the tokens after the first, which is what the eye sees; None until the server has
        counted them, or when there was only one."""
        if self.usage is None or self.first is None or self.last is None:
            return None
        tokens, seconds = self.usage.completion_tokens - 1, self.last - self.first
        return tokens / seconds if tokens > 0 and seconds > 0 else None
