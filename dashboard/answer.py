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


class Timings(msgspec.Struct, frozen=True):
    """What the server measured, in its own digits: the same figures as in its log line of the
    request. None where it does not say."""

    queue_ms: float | None = None
    prefill_ms: float | None = None
    time_to_first_token_ms: float | None = None
    total_ms: float | None = None
    mean_itl_ms: float | None = None
    prompt_tokens_per_second: float | None = None
    output_tokens_per_second: float | None = None


class _Problem(msgspec.Struct):
    message: str = "the server gave no reason"


class Chunk(msgspec.Struct):
    """Raises msgspec.ValidationError on decoding when a field has another type."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    error: _Problem | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


@dataclass(slots=True)
class ToolCall:
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """``sent``: seconds of the monotonic clock, for how long one has waited. All that is said about
    speed comes from the server: this process may be busy when a chunk arrives.

    ``usage``: the server's count so far, then the final one. ``request_id`` and ``trace_id`` find
    the request in the server's log and traces."""

    sent: float
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    chunks: int = 0  # that brought something
    usage: Usage | None = None
    timings: Timings | None = None
    request_id: str = ""
    trace_id: str = ""
    finish_reason: str | None = None
    ending: Ending | None = None
    error: str = ""

    def apply(self, chunk: Chunk) -> None:
        self.usage = chunk.usage or self.usage
        self.timings = chunk.timings or self.timings
        if chunk.error is not None:
            self.error = chunk.error.message
        for choice in chunk.choices[:1]:
            if self._grow(choice.delta):
                self.chunks += 1
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
    def size(self) -> int:
        """Characters."""
        calls = sum(len(call.name) + len(call.arguments) for call in self.tool_calls)
        return len(self.text) + len(self.reasoning) + calls
