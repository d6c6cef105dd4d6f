"""One answer as it grows."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec


class Ending(enum.StrEnum):
    """Why no more is coming. Anything but COMPLETE means that the answer may lack its end."""

    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class BrokenStreamError(Exception):
    """The stream began but did not end properly. The message is for users."""


@dataclass(frozen=True, slots=True)
class Usage:
    """None: the server does not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


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


@dataclass(slots=True)
class ToolCall:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """An output token with the likeliest in its place, the likeliest first."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


_MOST_CALLS = 128


@dataclass(slots=True)
class Answer:
    """``sent``: seconds of the monotonic clock, for how long one has waited. All that is said about
    speed comes from the server: this process may be busy when a chunk arrives.

    ``usage``: the server's count so far, then the final one. ``thought_ms``: how long the model
    reasoned, where the server stamps its chunks. ``result``: what an API without a stream returned.
    ``request_id`` and ``trace_id`` find the request in the server's log and traces."""

    sent: float
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    chunks: int = 0  # that brought something
    usage: Usage | None = None
    timings: Timings | None = None
    thought_ms: float | None = None
    result: Any = None
    request_id: str = ""
    trace_id: str = ""
    finish_reason: str | None = None
    ending: Ending | None = None
    error: str = ""

    def copy(self) -> Answer:
        calls = [replace(call) for call in self.tool_calls]
        return replace(self, tool_calls=calls, tokens=list(self.tokens))

    def say(self, text: str) -> None:
        if text:
            self.text += text
            self.chunks += 1

    def think(self, text: str) -> None:
        if text:
            self.reasoning += text
            self.chunks += 1

    def call(self, index: int, *, call_id: str = "", name: str = "", arguments: str = "") -> None:
        """Begins or continues the call at ``index``."""
        index = min(max(index, 0), _MOST_CALLS - 1)
        while len(self.tool_calls) <= index:
            self.tool_calls.append(ToolCall())
        target = self.tool_calls[index]
        target.id = target.id or call_id
        target.name += name
        target.arguments += arguments
        self.chunks += 1

    def measure(self, timings: Timings | None) -> None:
        """``timings``: as they were when the server sent what was read last."""
        if timings is None:
            return
        self.timings = timings
        first, last = timings.time_to_first_token_ms, timings.total_ms
        reasons_still = self.reasoning and not self.text and not self.tool_calls
        if reasons_still and first is not None and last is not None:
            self.thought_ms = last - first

    @property
    def size(self) -> int:
        """Characters."""
        calls = sum(len(call.name) + len(call.arguments) for call in self.tool_calls)
        tokens = sum(len(token.text) + 8 * len(token.top) for token in self.tokens)
        return len(self.text) + len(self.reasoning) + calls + tokens
