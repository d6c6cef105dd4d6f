"""Output text to events, incrementally: the one parser, run by a format's description.

The same text cut anywhere gives the same events once adjacent deltas are joined. Half a tag is
held back until it is a tag or a false alarm. Text in which no tag ever appears goes out untouched.
White space next to a tag goes out as it stands where text of its kind came before and more of it
follows; at the start and the end of a kind's text it belongs to the tag.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable

from service.formats import Opening, OutputFormat
from service.output.call_ids import new_call_id
from service.output.calls.json_text import loads
from service.output.calls.mark import read_mark
from service.output.calls.reader import inner_opening, read_calls, resumes_at
from service.output.calls.sink import ToolSchemas, check_name
from service.output.calls.source import (
    EndOfTextError,
    NotACallError,
    Source,
    Stop,
    Stops,
    Waiting,
)
from service.output.channels import read_header
from service.output.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.output.spans import TokenSpans

# Tokens' texts in which no tag can begin, by the tags' first characters. Tokens are few, so nearly
# every look-up succeeds, and costs a third of the search that it spares.
_PLAIN_TEXTS: dict[str, set[str]] = {}
_MOST_PLAIN_TEXTS = 100_000


class _Meaning(enum.Enum):
    """What a tag does."""

    REASONING = enum.auto()  # what follows is reasoning
    TEXT = enum.auto()
    NOTHING = enum.auto()
    MARK = enum.auto()  # nothing either, but the white space around it is the text's
    CALLS = enum.auto()
    INNER_CALL = enum.auto()  # a call's own tag, without the one around it
    NEXT_CALL = enum.auto()  # a further call behind one that was malformed
    HEADER = enum.auto()


class OutputParser:
    """Feed text in order, then call ``finish`` once. Both append to ``log`` what became certain.

    Feed either each token's text by ``feed_token``, or, where text is held back in between, tell
    ``spans`` of every piece and ``feed`` what comes through. ``tools``: those that may be called;
    None: calls are not looked for. ``opening``: what the prompt's end left open. ``one_token``:
    the tags that are tokens of their own; spelled by several tokens they are just text.
    ``special``: those of them that no text is about.
    """

    def __init__(
        self,
        output_format: OutputFormat,
        spans: TokenSpans,
        log: list[Event],
        *,
        tools: ToolSchemas | None,
        opening: Opening = Opening.TEXT,
        one_token: frozenset[str] = frozenset(),
        special: frozenset[str] = frozenset(),
        mint_id: Callable[[], str] | None = None,
    ) -> None:
        self._format = output_format
        self._reasoning = output_format.reasoning
        self._tags = output_format.tool_call if tools is not None else None
        self._channels = output_format.channels
        self._tools: ToolSchemas = tools or {}
        self._calls_in_channels = tools is not None
        self._one_token = one_token
        self._special = special
        self._spans = spans
        self._mint_id = mint_id or new_call_id(self._tags.ids if self._tags else "random")
        self._in_reasoning = opening is Opening.REASONING
        self._calls_here = True  # calls may stand in this message
        self._shown = True  # False: the message is for somebody else, its text is dropped
        # White space that comes now belongs to a tag.
        self._after_tag = opening is not Opening.TEXT
        # What the output may begin with when the tag that opens reasoning is lost.
        self._bare_reasoning = ""
        if self._reasoning is not None and opening is Opening.TEXT:
            self._bare_reasoning = self._reasoning.bare
        # An answer begins here: what is not in tags may come.
        self._fresh = self._reads_bare_calls or bool(self._bare_reasoning)
        self._held = ""
        self._offset = 0  # characters of the text that events or dropped tags account for
        self._end = 0  # tokens that events account for
        self._source: Source | None = None  # while a reader is at work
        self._reader: Waiting | None = None
        self._opened = 0  # characters of the tag, and white space before it, that began the reading
        self._known_only = False  # only the request's own tools make a call
        self._calls_before = 0  # the reading
        self._malformed = False  # a call was; others may come behind it
        self._opening_shown = False  # a tag that opened no call is text, and so is its closing one
        self._in_header = False  # the reader is at one
        self._in_mark = False
        self._call_open = False
        self._arguments: list[str] = []  # of the open call
        self.calls = 0  # tool calls begun
        self.complete_calls = 0
        self._events = log
        self._kind: type[ReasoningDelta] | type[TextDelta] = TextDelta
        self._begun: set[type[Event]] = set()  # the kinds of text of which there was some
        self._gaps: dict[type[Event], str] = {}  # white space before the next text of a kind
        self._gap_before = ""  # what that was before the tag that began the reading
        self._stops = Stops(self._stop_tags(), self._stop_kind)
        self._meanings: dict[str, _Meaning] = {}
        self._spelled: tuple[str, ...] = ()  # tags that may come in pieces
        self._search: re.Pattern[str] | None = None
        self._trigger: re.Pattern[str] | None = None
        self._plain: set[str] = set()
        self._watch()
        if opening is Opening.HEADER:
            self._start_header(0, "")

    def feed_token(self, text: str, tokens: int) -> None:
        """``text``, not empty, is what the ``tokens``-th output token completed."""
        free = not (self._held or self._after_tag or self._fresh) and self._source is None
        if free and self._shown and (text in self._plain or self._is_plain(text)):
            # Nothing before it is open, so its span needs no looking up.
            self._events.append(self._kind(text, self._end, tokens))
            self._end = tokens
            return
        self._spans.push(len(text), tokens)
        self._feed_held(text)

    def feed(self, text: str) -> None:
        if self._passes(text):
            self._emit_text(text)
        else:
            self._feed_held(text)

    def _passes(self, text: str) -> bool:
        """Whether no part of this text can belong to a tag."""
        if self._held or self._after_tag or self._fresh or self._source is not None:
            return False
        return self._is_plain(text)

    def _is_plain(self, text: str) -> bool:
        """Whether neither a tag nor white space before one can begin in this text."""
        trigger = self._trigger
        if trigger is not None and trigger.search(text) is not None:
            return False
        if len(self._plain) < _MOST_PLAIN_TEXTS:
            self._plain.add(text)
        return True

    def _feed_held(self, text: str) -> None:
        if self._source is not None:
            self._source.feed(text)
        else:
            self._held += text
        while self._step():
            pass

    def finish(self, *, truncated: bool) -> None:
        """No more text comes. ``truncated``: the model was cut off (``length``), so that an
        unfinished call is a call all the same and not text."""
        while self._source is not None:
            self._source.end(truncated=truncated)
            if self._read(truncated=truncated) or self._source is None:
                while self._step():
                    pass
        kept = len(self._held)
        if truncated:
            held = self._possible_tag()
            half_tag = self._held[kept - held :].lstrip()
            if len(half_tag) > 1 and not "".join(half_tag.split()).isalnum():
                kept -= held  # it would have been a tag; words may be the text's own
        self._emit_text(self._take_held(kept))

    # --- one step of the machine: True while there may be more to do -----------------------------

    def _step(self) -> bool:
        return self._step_text() if self._source is None else self._read()

    def _step_text(self) -> bool:
        if self._after_tag or self._fresh:
            started = self._step_start()
            if started is not None:
                return started
        found = self._first_tag()
        if found is None:
            self._emit_text(self._take_held(len(self._held) - self._possible_tag()))
            return False
        start, tag = found
        if self._opening_shown and self._tags is not None and tag == self._tags.close:
            self._opening_shown = self._malformed = False
            self._emit_text(self._take_held(start + len(tag)))
            self._watch()
            return True
        before = self._held[:start]
        if self._meanings[tag] is not _Meaning.MARK:
            before = before.rstrip()
        self._emit_text(self._take_held(len(before)))
        self._enter(tag)
        return True

    def _step_start(self) -> bool | None:
        """Where a stretch of text begins. None: it goes on as text."""
        rest = self._held.lstrip()
        if self._after_tag:
            self._leave_gap(len(self._held) - len(rest))
        if not rest:
            return False
        self._after_tag = False
        if self._fresh and not self._in_reasoning:
            bare, self._bare_reasoning = self._bare_reasoning, ""
            if bare and rest.startswith(bare):
                self._drop(len(self._held) - len(rest) + len(bare))
                self._switch(reasoning=True)
                return True
            if bare.startswith(rest):
                self._bare_reasoning = bare
                return False
            self._fresh = False
            if self._tags is not None and rest[0] == self._tags.bare:
                self._drop(len(self._held) - len(rest))
                self._start_calls(0)
                return True
        return None

    def _enter(self, tag: str) -> None:
        """Do what the tag says that comes next, perhaps with white space before it."""
        if self._events and type(self._events[-1]) is self._kind:
            self._begun.add(self._kind)
        start = self._held.index(tag)
        size = start + len(tag)
        meaning = self._meanings[tag]
        if meaning is _Meaning.HEADER:
            assert self._channels is not None
            if tag in self._channels.message:
                self._start_header(start, "")
            else:
                self._start_header(size, tag)
            return
        if meaning is _Meaning.MARK:
            self._start_mark(size, tag)
            return
        self._opening_shown = False
        if meaning in (_Meaning.INNER_CALL, _Meaning.NEXT_CALL):
            self._start_calls(start, tag, meaning)
            return
        if self._malformed:
            self._malformed = False
            self._watch()
        if meaning is _Meaning.CALLS:
            self._start_calls(size)
            return
        self._leave_gap(start)
        self._drop(len(tag))
        self._after_tag = True
        if meaning is not _Meaning.NOTHING:
            self._switch(reasoning=meaning is _Meaning.REASONING)

    def _switch(self, *, reasoning: bool) -> None:
        self._in_reasoning = reasoning
        self._shown = self._calls_here = True
        self._after_tag = True
        self._fresh = self._reads_bare_calls and not reasoning
        self._watch()

    @property
    def _reads_bare_calls(self) -> bool:
        return self._tags is not None and bool(self._tags.bare)

    # --- calls -----------------------------------------------------------------------------------

    def _start_calls(self, size: int, tag: str = "", meaning: _Meaning = _Meaning.CALLS) -> None:
        """``size``: of the white space and tag in front of the calls. ``tag``: which begins the
        first of them, where that means no more than this."""
        assert self._tags is not None
        source = self._begin_reading(size, len(tag))
        resumed, inner = meaning is _Meaning.NEXT_CALL, meaning is _Meaning.INNER_CALL
        self._known_only = self._opened == 0 or (bool(tag) and bool(self._tools))
        self._reader = read_calls(
            source, self, self._tags, self._tools, resumed=resumed, inner=inner
        )

    def _start_header(self, size: int, opened: str) -> None:
        assert self._channels is not None
        source = self._begin_reading(size)
        tools = self._tools if self._calls_in_channels else None
        self._reader = read_header(source, self, self._channels, self._tags, tools, opened)
        self._in_header = True

    def _start_mark(self, size: int, tag: str) -> None:
        end = dict(self._format.marks)[tag]
        if not end:
            self._drop(size)
            return
        source = self._begin_reading(size)
        self._reader = read_mark(source, end)
        self._in_mark = True

    def _begin_reading(self, size: int, tag: int = 0) -> Source:
        """``tag``: characters of what comes next that are text if it is no call."""
        source = self._source = Source(self._held, self._offset, self._stops)
        before = source.take(size)
        self._gap_before = self._gaps.get(self._kind, "")
        self._add_gap(before[: len(before) - len(before.lstrip())])
        self._held = ""
        self._in_header = self._in_mark = False
        self._opened = size + tag
        self._calls_before = self.calls
        return source

    def _read(self, *, truncated: bool = False) -> bool:
        """Let the reader go on with what has come."""
        source, reader = self._source, self._reader
        assert source is not None
        assert reader is not None
        try:
            next(reader)
        except StopIteration:
            self._stop_reading(source)
        except NotACallError:
            self._release(source)
        except EndOfTextError:
            # What stands between calls, or behind the last, is a tag that was not finished.
            # A header that was not finished says nothing, but text without one is text.
            header = self._in_header and self._opened > 0 and not self._in_mark
            if truncated or header or self.calls > self._calls_before:
                self._stop_reading(source)
                self._held = ""
            else:
                self._release(source)
        else:
            return False
        return True

    def _stop_reading(self, source: Source) -> None:
        self._offset = source.offset
        self._held = source.rest
        self._source = self._reader = None
        self._call_open = False
        self._after_tag = not self._in_mark

    def _release(self, source: Source) -> None:
        """It was no call: what looked like one is text. A later tag in it still counts, and so does
        another call."""
        raw = "" if self._call_open else source.unsettled
        self._stop_reading(source)
        self._after_tag = False
        self._offset -= len(raw)
        self._held = raw + self._held
        if not (self._in_header or self._in_mark) and self._was_meant_as_call(raw):
            self._malformed = True
            self._watch()
        if self.calls == self._calls_before:
            self._gaps[self._kind] = self._gap_before
            self._opening_shown = self._opened > 0
            self._emit_text(self._take_held(self._opened))

    def _was_meant_as_call(self, text: str) -> bool:
        """Whether further calls may be looked for behind this, which is none."""
        if self._opened > 0 or self.calls > self._calls_before:
            return True
        assert self._tags is not None
        start = "".join(text.split()).lstrip("[")
        openings = resumes_at(self._tags, self._tools)
        return start.startswith(tuple(opening[:-1] for opening in openings))

    # --- what readers find (CallSink) ------------------------------------------------------------

    def begin(self, name: str, call_id: str | None = None) -> None:
        check_name(name, self._tools, known=self._known_only and not self._in_header)
        source = self._source
        assert source is not None
        source.settle()
        self._call_open = True
        self._arguments = []
        end = self._account(source)
        self._events.append(
            ToolCallBegin(self.calls, call_id or self._mint_id(), name, self._end, end)
        )
        self.calls += 1
        self._end = end

    def arguments(self, text: str) -> None:
        source = self._source
        assert source is not None
        self._arguments.append(text)
        end = self._account(source)
        self._events.append(ToolArgumentsDelta(self.calls - 1, text, self._end, end))
        self._end = end

    def end(self, *, whole: bool = True) -> None:
        source = self._source
        assert source is not None
        source.watch()
        self._call_open = False
        if whole and isinstance(loads("".join(self._arguments)), dict):
            end = self._account(source)
            self._events.append(ToolCallEnd(self.calls - 1, self._end, end))
            self._end = end
            self.complete_calls += 1
        self._arguments = []

    def _account(self, source: Source) -> int:
        """How many tokens made what was read so far."""
        self._offset = source.offset
        return self._spans.tokens_before(self._offset)

    # --- what a header says (HeaderSink) ---------------------------------------------------------

    def channel(self, *, reasoning: bool, shown: bool = True, calls: bool = True) -> None:
        """What follows is text, or reasoning, or not shown; with calls in it, or not."""
        self._in_reasoning = reasoning
        self._shown = shown
        self._calls_here = calls
        self._fresh = False
        self._watch()
        if shown and not self._gaps.get(self._kind):
            self._gaps[self._kind] = "\n"  # two messages are not one word

    # --- text and its offsets --------------------------------------------------------------------

    def _watch(self) -> None:
        """Which tags mean something in the present channel, and what its text is."""
        self._kind = ReasoningDelta if self._in_reasoning else TextDelta
        meanings = self._meanings = dict(self._meanings_now())
        tags = sorted(meanings, key=len, reverse=True)
        self._spelled = tuple(tag for tag in tags if tag not in self._one_token)
        self._search = re.compile("|".join(map(re.escape, tags))) if tags else None
        starts = "".join(sorted({re.escape(tag[0]) for tag in tags}))
        self._trigger = re.compile(rf"[{starts}]|\s\Z") if tags else None
        self._plain = _PLAIN_TEXTS.setdefault(starts if tags else "", set())

    def _meanings_now(self) -> Iterable[tuple[str, _Meaning]]:
        form = self._format
        yield from ((tag, _Meaning.NOTHING) for tag in form.ignored)
        yield from ((tag, _Meaning.NOTHING) for tag in self._out_of_place() if _is_markup(tag))
        yield from ((tag, _Meaning.MARK) for tag, _ in form.marks)
        if self._reasoning is not None:
            if self._in_reasoning:
                yield from ((tag, _Meaning.TEXT) for tag in self._reasoning.closes)
            else:
                yield from ((tag, _Meaning.REASONING) for tag in self._reasoning.opens)
        if self._channels is not None:
            yield from ((tag, _Meaning.TEXT) for tag in self._channels.closes)
            yield from ((tag, _Meaning.HEADER) for tag in self._channels.opens)
        if self._tags is not None and self._calls_here:
            yield from ((tag, _Meaning.NOTHING) for tag in self._tags.around)
            if inner := inner_opening(self._tags):
                yield inner, _Meaning.INNER_CALL
            if self._malformed:
                openings = resumes_at(self._tags, self._tools)
                yield from ((opening, _Meaning.NEXT_CALL) for opening in openings)
            yield from ((tag, _Meaning.CALLS) for tag in self._tags.opens)

    def _out_of_place(self) -> Iterable[str]:
        """Tags that close what is not open, or open what is."""
        if self._reasoning is not None:
            yield from self._reasoning.opens if self._in_reasoning else self._reasoning.closes
        if self._tags is not None and self._tags.close and self._calls_here:
            yield self._tags.close

    def _stop_tags(self) -> tuple[str, ...]:
        """What ends a call that has no end of its own."""
        tags: list[str] = []
        if self._tags is not None:
            tags += (*self._tags.opens, self._tags.close, *self._tags.around, *self._tags.section)
        if self._channels is not None:
            tags += (*self._channels.opens, *self._channels.closes)
        return tuple(dict.fromkeys(tag for tag in tags if tag and not tag.split()[0][0].isalnum()))

    def _stop_kind(self, tag: str, offset: int) -> Stop:
        if tag not in self._one_token:
            return Stop.PERHAPS
        if not self._spans.is_one_piece(offset, len(tag)):
            return Stop.TEXT
        return Stop.CERTAIN if tag in self._special else Stop.PERHAPS

    def _first_tag(self) -> tuple[int, str] | None:
        if self._search is None:
            return None
        start = 0
        while (match := self._search.search(self._held, start)) is not None:
            tag = match[0]
            if tag not in self._one_token or self._spans.is_one_piece(
                self._offset + match.start(), len(tag)
            ):
                return match.start(), tag
            start = match.start() + 1
        return None

    def _possible_tag(self) -> int:
        """Length of the longest end of the held text that may turn out to begin a tag, with the
        white space before it."""
        if not self._meanings:
            return 0
        held = self._held
        longest = max(map(len, self._spelled), default=1) - 1
        partial = 0
        for length in range(min(longest, len(held)), 0, -1):
            end = held[-length:]
            if any(tag.startswith(end) and len(tag) > length for tag in self._spelled):
                partial = length
                break
        return len(held) - len(held[: len(held) - partial].rstrip())

    def _take_held(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        return text

    def _drop(self, size: int) -> None:
        self._held = self._held[size:]
        self._offset += size

    def _leave_gap(self, size: int) -> None:
        """The white space that comes next belongs to a tag, unless text follows."""
        self._add_gap(self._held[:size])
        self._drop(size)

    def _add_gap(self, space: str) -> None:
        if space and self._shown:
            self._gaps[self._kind] = self._gaps.get(self._kind, "") + space

    def _emit_text(self, text: str) -> None:
        if not text:
            return
        self._offset += len(text)
        if not self._shown:
            return
        if self._gaps and (gap := self._gaps.pop(self._kind, "")) and self._kind in self._begun:
            text = gap + text
        end = self._spans.tokens_before(self._offset)
        self._events.append(self._kind(text, self._end, end))
        self._end = end


def _is_markup(tag: str) -> bool:
    """Whether no sentence holds it by chance."""
    return not tag.split()[0][0].isalnum() and any(map(str.isalnum, tag))
