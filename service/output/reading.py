"""A reading in progress: a parser for calls, a header or a mark, and the sink for what it finds."""

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
from service.output.held_text import Gap
from service.output.spans import TokenSpans
from service.output.tags import Meaning, TagTable


class Subject(enum.Enum):
    """What a reading parses."""

    CALLS = enum.auto()
    HEADER = enum.auto()
    MARK = enum.auto()


class Header(NamedTuple):
    """What a header says about the text that follows it: reasoning or text, shown or hidden, with
    or without calls."""

    reasoning: bool
    shown: bool
    calls: bool


@dataclass(slots=True)
class CallLog:
    """The calls of one output so far. ``end``: the number of tokens that events cover; each event
    covers the tokens from there to the end of the text consumed."""

    events: list[Event]
    spans: TokenSpans
    tools: ToolSchemas
    mint_id: Callable[[], str]
    end: int = 0
    begun: int = 0
    complete: int = 0


class Finds:
    """The ``HeaderSink`` of one reading. ``known_only``: only the request's own tools count as a
    call."""

    __slots__ = (
        *("_arguments", "_known_only", "_log", "_source"),
        *("call_open", "calls", "header", "past_header"),
    )

    def __init__(self, source: Source, log: CallLog, *, known_only: bool = False) -> None:
        self.calls = 0
        self.call_open = False
        self.header: Header | None = None  # set once it has been read, with the call if it has one
        self.past_header = False
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
        self.past_header = True

    def call(self) -> None:
        self.past_header = True


class ReasoningEnd:
    """Finds where reasoning ends in text that may be a call: after a tag and white space."""

    __slots__ = ("_found", "_past", "_spans", "_table", "_tail")

    def __init__(self, table: TagTable, spans: TokenSpans) -> None:
        self._table = table
        self._spans = spans
        self._tail = ""  # in which a tag may have begun
        self._found = False
        self._past = False

    def push(self, text: str, offset: int) -> None:
        """``offset``: where the text begins in the output."""
        if not self._found:
            text, offset = self._tail + text, offset - len(self._tail)
            end = self._table.after(Meaning.TEXT, text, offset, self._spans)
            if end is None:
                self._tail = text[max(0, len(text) - self._table.longest) :]
                return
            self._found = True
            text = text[end:]
        self._past = self._past or bool(text.strip())

    def part(self, text: str, waiting: str, offset: int) -> int:
        """Return how many of the next characters certainly precede the end of reasoning: at least
        one, or a whole tag, until it is found. ``waiting``: text before them that follows it."""
        if self._past or waiting:
            return 0
        if self._found:
            return len(text) - len(text.lstrip())
        tag = self._table.first(text, offset, self._spans)
        return len(tag[1]) if tag is not None and tag[0] == 0 else 1


@dataclass(frozen=True, slots=True)
class OpenReading:
    """``opened``: length of the tag that began the reading, with the white space before it.
    ``gap_before``: white space that was pending at that time. ``reasoning_end``: if the text is
    reasoning unless it is a call."""

    subject: Subject
    source: Source
    reader: Waiting
    finds: Finds
    opened: int
    gap_before: tuple[Gap, ...]
    reasoning_end: ReasoningEnd | None = None

    def feed(self, text: str) -> None:
        if self.reasoning_end is not None:
            self.reasoning_end.push(text, self._offset)
        self.source.feed(text)

    @property
    def _offset(self) -> int:
        """Where the next text begins in the output."""
        return self.source.offset + len(self.source.rest)

    @property
    def found_calls(self) -> bool:
        return self.finds.calls > 0

    def before_answer(self, text: str, waiting: str, ends: tuple[str, ...]) -> int:
        """Return how many of the next characters belong to a header, or to reasoning with what only
        may be a call, as far as is known. ``waiting``: see ``OutputParser.before_answer``;
        ``ends``: the tags that end a header."""
        if self.reasoning_end is not None and not self.found_calls:
            return self.reasoning_end.part(text, waiting, self._offset)
        if self.subject is not Subject.HEADER or self.finds.past_header:
            return 0
        rest = self.source.rest
        whole = rest + text
        found = [whole.find(tag) + len(tag) for tag in ends if tag in whole]
        return max(1, min(found, default=len(whole)) - len(rest))

    @property
    def is_unfinished_tag(self) -> bool:
        """True if, at the end of the text, what is left is an unfinished tag: between calls, after
        the last call, or in a header. (Text without a header is text.)"""
        is_header = self.subject is Subject.HEADER and self.opened > 0
        return is_header or self.found_calls


class Readers:
    """Starts the readings of one output. ``gap``: see ``OpenReading.gap_before``; ``size``: the
    characters already consumed from ``source``."""

    def __init__(self, form: OutputFormat, log: CallLog, *, looks_for_calls: bool) -> None:
        self.form = form
        self._log = log
        self._tags = form.tool_call if looks_for_calls else None
        self._tools = log.tools if looks_for_calls else None

    def calls(
        self,
        source: Source,
        gap: tuple[Gap, ...],
        size: int,
        tag: str,
        meaning: Meaning,
        reasoning_end: ReasoningEnd | None,
    ) -> OpenReading:
        """``tag``: the next tag, with which the first call begins; it becomes text if there is no
        call."""
        assert self._tags is not None
        tools = self._log.tools
        opened = size + len(tag)
        finds = Finds(source, self._log, known_only=opened == 0 or (bool(tag) and bool(tools)))
        resumed, inner = meaning is Meaning.NEXT_CALL, meaning is Meaning.INNER_CALL
        reader = read_calls(source, finds, self._tags, tools, resumed=resumed, inner=inner)
        if reasoning_end is not None:
            reasoning_end.push(source.rest, source.offset)
        return OpenReading(Subject.CALLS, source, reader, finds, opened, gap, reasoning_end)

    def header(self, source: Source, gap: tuple[Gap, ...], size: int, opened: str) -> OpenReading:
        """``opened``: the tag that began the header."""
        assert self.form.channels is not None
        finds = Finds(source, self._log)
        reader = read_header(source, finds, self.form.channels, self._tags, self._tools, opened)
        return OpenReading(Subject.HEADER, source, reader, finds, size, gap)

    def mark(self, source: Source, gap: tuple[Gap, ...], size: int, end: str) -> OpenReading:
        reader = read_mark(source, end)
        return OpenReading(Subject.MARK, source, reader, Finds(source, self._log), size, gap)

    def may_resume(self, reading: OpenReading, text: str) -> bool:
        """True if further calls may follow ``text``, which turned out not to contain one."""
        if reading.subject is not Subject.CALLS:
            return False
        if reading.opened > 0 or reading.found_calls:
            return True
        assert self._tags is not None
        start = "".join(text.split()).lstrip("[")
        openings = resumes_at(self._tags, self._log.tools)
        return start.startswith(tuple(opening[:-1] for opening in openings))
