"""A choice's events in order, and what they fold to.

Streaming reads the log as it grows; a whole answer is ``fold`` over the same log: the two cannot
differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from service.generation.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
)


@dataclass(slots=True)
class FoldedCall:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Folded:
    """``shown_tokens``: how many output tokens the events cover; the rest made no text."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[FoldedCall] = field(default_factory=list)
    shown_tokens: int = 0
    reasoning_tokens: int = 0
    finished: Finished | None = None


def fold(events: list[Event]) -> Folded:
    """Everything a whole answer says of one choice."""
    folded = Folded()
    content: list[str] = []
    reasoning: list[str] = []
    for event in events:
        match event:
            case TextDelta():
                content.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
                folded.reasoning_tokens += event.end - event.start
            case ToolCallBegin():
                folded.tool_calls.append(FoldedCall(event.id, event.name))
            case ToolArgumentsDelta():
                folded.tool_calls[event.index].arguments += event.text
            case Finished():
                folded.finished = event
                continue
        folded.shown_tokens = event.end
    folded.content = "".join(content)
    folded.reasoning = "".join(reasoning)
    return folded
