"""A reading under way: a reader at work on calls, a header or a mark, and where its finds go."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from service.output.calls.json_text import loads
from service.output.calls.sink import ToolSchemas, check_name
from service.output.calls.source import Source, Waiting
from service.output.events import Event, ToolArgumentsDelta, ToolCallBegin, ToolCallEnd
from service.output.spans import TokenSpans


class Subject(enum.Enum):
    """What is being read."""

    CALLS = enum.auto()
    HEADER = enum.auto()
    MARK = enum.auto()


class Header(NamedTuple):
    """What follows it: reasoning or text, shown or not, with calls in it or not."""

    reasoning: bool
    shown: bool
    calls: bool


@dataclass(slots=True)
class CallLog:
    """The calls of one output so far. ``end``: the tokens that events account for; each event takes
    those from there to the end of what was read."""

    events: list[Event]
    spans: TokenSpans
    tools: ToolSchemas
    mint_id: Callable[[], str]
    end: int = 0
    begun: int = 0
    complete: int = 0


class Finds:
    """What one reading finds, a ``HeaderSink``. ``known_only``: only the request's own tools make a
    call."""

    __slots__ = ("_arguments", "_known_only", "_log", "_source", "call_open", "header")

    def __init__(self, source: Source, log: CallLog, *, known_only: bool = False) -> None:
        self.call_open = False
        self.header: Header | None = None  # once it is read
        self._source = source
        self._log = log
        self._known_only = known_only
        self._arguments: list[str] = []  # of the open call

    def begin(self, name: str, call_id: str | None = None) -> None:
        check_name(name, self._log.tools, known=self._known_only)
        self._source.settle()
        self.call_open = True
        self._arguments = []
        log = self._log
        start, log.end = log.end, log.spans.tokens_before(self._source.offset)
        log.events.append(ToolCallBegin(log.begun, call_id or log.mint_id(), name, start, log.end))
        log.begun += 1

    def arguments(self, text: str) -> None:
        self._arguments.append(text)
        log = self._log
        start, log.end = log.end, log.spans.tokens_before(self._source.offset)
        log.events.append(ToolArgumentsDelta(log.begun - 1, text, start, log.end))

    def end(self, *, whole: bool = True) -> None:
        self._source.watch()
        self.call_open = False
        if whole and isinstance(loads("".join(self._arguments)), dict):
            log = self._log
            start, log.end = log.end, log.spans.tokens_before(self._source.offset)
            log.events.append(ToolCallEnd(log.begun - 1, start, log.end))
            log.complete += 1
        self._arguments = []

    def channel(self, *, reasoning: bool, shown: bool = True, calls: bool = True) -> None:
        self.header = Header(reasoning, shown, calls)


@dataclass(frozen=True, slots=True)
class OpenReading:
    """``opened``: characters of the tag, and white space before it, that began the reading.
    ``calls_before``: calls begun before it. ``gap_before``: white space that was waiting for text
    then."""

    subject: Subject
    source: Source
    reader: Waiting
    finds: Finds
    opened: int
    calls_before: int
    gap_before: str
