"""A reading under way: a reader at work on calls, a header or a mark, and where its finds go."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from service.formats import OutputFormat
from service.output.calls.json_text import loads
from service.output.calls.mark import read_mark
from service.output.calls.reader import read_calls, resumes_at
from service.output.calls.sink import ToolSchemas, check_name
from service.output.calls.source import Source, Waiting
from service.output.channels import read_header
from service.output.events import Event, ToolArgumentsDelta, ToolCallBegin, ToolCallEnd
from service.output.spans import TokenSpans
from service.output.tags import Meaning


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

    __slots__ = ("_arguments", "_known_only", "_log", "_source", "call_open", "calls", "header")

    def __init__(self, source: Source, log: CallLog, *, known_only: bool = False) -> None:
        self.calls = 0
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
        self.calls += 1

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
    ``gap_before``: white space that was waiting for text then."""

    subject: Subject
    source: Source
    reader: Waiting
    finds: Finds
    opened: int
    gap_before: str

    @property
    def found_calls(self) -> bool:
        return self.finds.calls > 0

    @property
    def is_unfinished_tag(self) -> bool:
        """At the end of the text: what comes between calls, or after the last, is an unfinished
        tag. An unfinished header means nothing, but text without a header is text."""
        is_header = self.subject is Subject.HEADER and self.opened > 0
        return is_header or self.found_calls


class Readers:
    """Begins the readings of one output. ``gap``: see ``OpenReading.gap_before``; ``size``: the
    characters already read from ``source``."""

    def __init__(self, form: OutputFormat, log: CallLog, *, looks_for_calls: bool) -> None:
        self.form = form
        self._log = log
        self._tags = form.tool_call if looks_for_calls else None
        self._tools = log.tools if looks_for_calls else None

    def calls(self, source: Source, gap: str, size: int, tag: str, meaning: Meaning) -> OpenReading:
        """``tag``: the one that comes next and begins the first call; it is text if none does."""
        assert self._tags is not None
        tools = self._log.tools
        opened = size + len(tag)
        finds = Finds(source, self._log, known_only=opened == 0 or (bool(tag) and bool(tools)))
        resumed, inner = meaning is Meaning.NEXT_CALL, meaning is Meaning.INNER_CALL
        reader = read_calls(source, finds, self._tags, tools, resumed=resumed, inner=inner)
        return OpenReading(Subject.CALLS, source, reader, finds, opened, gap)

    def header(self, source: Source, gap: str, size: int, opened: str) -> OpenReading:
        """``opened``: the tag that began it."""
        assert self.form.channels is not None
        finds = Finds(source, self._log)
        reader = read_header(source, finds, self.form.channels, self._tags, self._tools, opened)
        return OpenReading(Subject.HEADER, source, reader, finds, size, gap)

    def mark(self, source: Source, gap: str, size: int, end: str) -> OpenReading:
        reader = read_mark(source, end)
        return OpenReading(Subject.MARK, source, reader, Finds(source, self._log), size, gap)

    def may_resume(self, reading: OpenReading, text: str) -> bool:
        """Whether further calls may be looked for after ``text``, which turned out to hold none."""
        if reading.subject is not Subject.CALLS:
            return False
        if reading.opened > 0 or reading.found_calls:
            return True
        assert self._tags is not None
        start = "".join(text.split()).lstrip("[")
        openings = resumes_at(self._tags, self._log.tools)
        return start.startswith(tuple(opening[:-1] for opening in openings))
