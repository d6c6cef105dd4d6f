"""Folds the events of a choice into a complete answer.

A stream reads the log as it grows; a complete answer is ``fold`` over the same log, so the two
cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)


@dataclass(slots=True)
class FoldedCall:
    id: str
    name: str
    arguments: str = ""


def shown_tokens(events: list[Event]) -> int:
    """Return how many output tokens the answer shows. Those that ended it are left out: a stop
    token, a stop string. Last ones that produced no text, such as those of a tag, are shown."""
    if events and isinstance(last := events[-1], Finished) and not isinstance(last.matched, str):
        return last.tokens - last.is_last_hidden
    return next((event.end for event in reversed(events) if not isinstance(event, Finished)), 0)


class ShownTokens:
    """Which tokens each event adds to those that an answer shows. ``reasoning``: False leaves out
    those of reasoning and of its tags."""

    __slots__ = ("_kept", "_last", "_next", "_reasoning")

    def __init__(self, *, reasoning: bool) -> None:
        self._reasoning = reasoning
        self._next = 0
        self._last: type[Event] | None = None
        # White space between a text and hidden reasoning: shown if text follows.
        self._kept = (0, 0)

    def hides(self, event: Event) -> bool:
        return type(event) is ReasoningDelta and not self._reasoning

    def take(self, event: Event, end: int) -> list[tuple[int, int]]:
        """Return the ranges of tokens, up to ``end``, which belong to the next event, or to the
        tags before it."""
        last, self._last = self._last, type(event)
        if isinstance(event, ReasoningDelta) and not self._reasoning:
            if last is not ReasoningDelta:
                self._kept = (self._next, event.start if last is TextDelta else self._next)
            return []
        start, shown = self._next, []
        # Tokens before a text may be those of reasoning's tags without reasoning in between.
        if not self._reasoning and last in (None, ReasoningDelta):
            start = end if isinstance(event, Finished) else event.start
            if last is not None and isinstance(event, TextDelta):
                shown = [self._kept]
        elif not self._reasoning and last is TextDelta and isinstance(event, TextDelta):
            start = event.start
        self._next = max(start, end)
        return [(first, after) for first, after in (*shown, (start, self._next)) if first < after]

    def all(self, events: list[Event]) -> list[tuple[int, int]]:
        """Return the ranges of a whole answer, as few as possible."""
        if self._reasoning:
            return [(0, shown_tokens(events))]
        ranges = [(0, 0)]
        for event in events:
            if isinstance(event, ToolCallEnd):
                continue  # its tokens come with the next event
            last = shown_tokens(events) if isinstance(event, Finished) else event.end
            for start, end in self.take(event, last):
                if start == ranges[-1][1]:
                    ranges[-1] = ranges[-1][0], end
                else:
                    ranges.append((start, end))
        return ranges


def reasoning_tokens(events: list[Event]) -> int:
    return sum([event.end - event.start for event in events if type(event) is ReasoningDelta])


@dataclass(slots=True)
class Folded:
    """One choice as a complete answer. ``shown_tokens``: see the function of that name."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[FoldedCall] = field(default_factory=list)
    shown_tokens: int = 0
    finished: Finished | None = None


def fold(events: list[Event]) -> Folded:
    """Combine the events of one choice into a complete answer."""
    folded = Folded()
    content: list[str] = []
    reasoning: list[str] = []
    arguments: list[list[str]] = []  # of each call
    for event in events:
        match event:
            case TextDelta():
                content.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case ToolCallBegin():
                folded.tool_calls.append(FoldedCall(event.id, event.name))
                arguments.append([])
            case ToolArgumentsDelta():
                arguments[event.index].append(event.text)
            case Finished():
                folded.finished = event
    folded.shown_tokens = shown_tokens(events)
    folded.content = "".join(content)
    folded.reasoning = "".join(reasoning)
    for call, pieces in zip(folded.tool_calls, arguments, strict=True):
        call.arguments = "".join(pieces)
    return folded
