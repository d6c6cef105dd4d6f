"""Output text to events, incrementally: the one parser, run by a format's description.

The same text cut anywhere gives the same events once adjacent deltas are joined. Half a tag is
held back until it is a tag or a false alarm. Text without any tag goes out untouched. White space
next to a tag goes out as it is if there is text of its kind before and after it; at the start and
the end of a kind's text it belongs to the tag.
"""

from __future__ import annotations

from collections.abc import Callable

from service.formats import Opening, OutputFormat
from service.output.call_ids import new_call_id
from service.output.calls.sink import ToolSchemas
from service.output.calls.source import EndOfTextError, NotACallError, Source
from service.output.events import Event, ReasoningDelta, TextDelta
from service.output.reading import CallLog, Header, OpenReading, Readers, Subject
from service.output.spans import TokenSpans
from service.output.tags import FormatTags, Meaning


class OutputParser:
    """Feed text in order, then call ``finish`` once. Both append to ``log`` what became certain.

    Feed either each token's text by ``feed_token``, or, where text is held back in between, push
    every piece to ``spans`` and ``feed`` what comes through. ``opening``: what the prompt's end
    left open. For ``tools``, ``one_token`` and ``special`` see ``FormatTags``.
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
        self._reasoning = output_format.reasoning
        self._tags = output_format.tool_call if tools is not None else None
        self._channels = output_format.channels
        self._format_tags = FormatTags(output_format, tools, one_token, special)
        self._stops = self._format_tags.stops(spans)
        self._spans = spans
        self._events = log
        mint_id = mint_id or new_call_id(self._tags.ids if self._tags else "random")
        self.calls = CallLog(log, spans, tools or {}, mint_id)
        self._readers = Readers(output_format, self.calls, looks_for_calls=tools is not None)
        self._reading: OpenReading | None = None
        self._in_reasoning = opening is Opening.REASONING
        self._calls_here = True  # calls may come in this message
        self._shown = True  # False: the message is for somebody else, its text is dropped
        # White space that comes now belongs to a tag.
        self._after_tag = opening is not Opening.TEXT
        # What the output may begin with when the tag that opens reasoning is lost.
        starts = self._reasoning if opening is Opening.TEXT else None
        self._bare_reasoning = "" if starts is None else starts.bare
        self._bare_calls = self._tags is not None and bool(self._tags.bare)
        # An answer begins here: calls or reasoning without their tag may come.
        self._fresh = self._bare_calls or bool(self._bare_reasoning)
        self._held = ""
        self._offset = 0  # characters of the text that events or dropped tags account for
        self._end = 0  # tokens that events account for
        self._malformed = False  # a call was; others may come after it
        self._opening_shown = False  # a tag that opened no call is text, and so is its closing one
        self._kind: type[ReasoningDelta] | type[TextDelta] = TextDelta
        self._begun: set[type[Event]] = set()  # the kinds of text of which there was some
        self._gaps: dict[type[Event], str] = {}  # white space before the next text of a kind
        self._watch()
        if opening is Opening.HEADER:
            self._start_header(0, "")

    def feed_token(self, text: str, tokens: int) -> None:
        """``text``, not empty, is what the ``tokens``-th output token completed."""
        free = not (self._held or self._after_tag or self._fresh) and self._reading is None
        if free and self._shown and (text in self._plain or self._table.is_plain(text)):
            # Nothing before it is open, so its span needs no looking up.
            self._events.append(self._kind(text, self._end, tokens))
            self._end = tokens
            return
        self._spans.push(len(text), tokens)
        self._feed_held(text)

    def feed(self, text: str) -> None:
        free = not (self._held or self._after_tag or self._fresh) and self._reading is None
        if free and self._table.is_plain(text):
            self._emit_text(text)
        else:
            self._feed_held(text)

    def _feed_held(self, text: str) -> None:
        if self._reading is not None:
            self._reading.source.feed(text)
        else:
            self._held += text
        while self._step():
            pass

    def finish(self, *, truncated: bool) -> None:
        """No more text comes. ``truncated``: the model was cut off (``length``), so an unfinished
        call is still a call and not text."""
        while self._reading is not None:
            self._reading.source.end(truncated=truncated)
            if self._read(self._reading, truncated=truncated):
                while self._step():
                    pass
        dropped = self._table.unfinished(self._held) if truncated else 0
        self._emit_text(self._take_held(len(self._held) - dropped))

    # --- one step of the machine: True while there may be more to do -----------------------------

    def _step(self) -> bool:
        return self._step_text() if self._reading is None else self._read(self._reading)

    def _step_text(self) -> bool:
        if self._after_tag or self._fresh:
            started = self._step_start()
            if started is not None:
                return started
        found = self._table.first(self._held, self._offset, self._spans)
        if found is None:
            self._emit_text(self._take_held(len(self._held) - self._table.possible(self._held)))
            return False
        start, tag = found
        if self._opening_shown and self._tags is not None and tag == self._tags.close:
            self._opening_shown = self._malformed = False
            self._emit_text(self._take_held(start + len(tag)))
            self._watch()
            return True
        before = self._held[:start]
        if self._table.meanings[tag] is not Meaning.MARK:
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
        """Act on the tag that comes next, perhaps with white space before it."""
        if self._events and type(self._events[-1]) is self._kind:
            self._begun.add(self._kind)
        start = self._held.index(tag)
        size = start + len(tag)
        meaning = self._table.meanings[tag]
        if meaning is Meaning.HEADER:
            assert self._channels is not None
            if tag in self._channels.message:
                self._start_header(start, "")
            else:
                self._start_header(size, tag)
            return
        if meaning is Meaning.MARK:
            self._start_mark(size, tag)
            return
        self._opening_shown = False
        if meaning in (Meaning.INNER_CALL, Meaning.NEXT_CALL):
            self._start_calls(start, tag, meaning)
            return
        if self._malformed:
            self._malformed = False
            self._watch()
        if meaning is Meaning.CALLS:
            self._start_calls(size)
            return
        self._leave_gap(start)
        self._drop(len(tag))
        self._after_tag = True
        if meaning is not Meaning.NOTHING:
            self._switch(reasoning=meaning is Meaning.REASONING)

    def _switch(self, *, reasoning: bool) -> None:
        self._in_reasoning = reasoning
        self._shown = self._calls_here = True
        self._after_tag = True
        self._fresh = self._bare_calls and not reasoning
        self._watch()

    # --- readings --------------------------------------------------------------------------------

    def _start_calls(self, size: int, tag: str = "", meaning: Meaning = Meaning.CALLS) -> None:
        """``size``: of the white space and tag before the calls. ``tag``: see ``Readers.calls``."""
        source, gap = self._take_source(size)
        self._reading = self._readers.calls(source, gap, size, tag, meaning)

    def _start_header(self, size: int, opened: str) -> None:
        source, gap = self._take_source(size)
        self._reading = self._readers.header(source, gap, size, opened)

    def _start_mark(self, size: int, tag: str) -> None:
        end = dict(self._readers.form.marks)[tag]
        if end:
            source, gap = self._take_source(size)
            self._reading = self._readers.mark(source, gap, size, end)
        else:
            self._drop(size)

    def _take_source(self, size: int) -> tuple[Source, str]:
        """What is held, after its first ``size`` characters, and the gap before those."""
        source = Source(self._held, self._offset, self._stops)
        before = source.take(size)
        gap = self._gaps.get(self._kind, "")
        self._add_gap(before[: len(before) - len(before.lstrip())])
        self._held = ""
        self.calls.end = self._end
        return source, gap

    def _read(self, reading: OpenReading, *, truncated: bool = False) -> bool:
        """Let the reader go on with what has come. False: it waits for more."""
        try:
            next(reading.reader)
        except (StopIteration, NotACallError, EndOfTextError) as error:
            if reading.finds.header is not None:
                self._enter_channel(reading.finds.header)
            self._end = self.calls.end
            if isinstance(error, StopIteration):
                self._stop_reading(reading)
            elif isinstance(error, EndOfTextError) and (truncated or reading.is_unfinished_tag):
                self._stop_reading(reading)
                self._held = ""
            else:
                self._release(reading)
            return True
        return False

    def _stop_reading(self, reading: OpenReading) -> None:
        self._offset = reading.source.offset
        self._held = reading.source.rest
        self._reading = None
        self._after_tag = reading.subject is not Subject.MARK

    def _release(self, reading: OpenReading) -> None:
        """What looked like a call is text. A later tag in it still counts, and so does another
        call."""
        raw = "" if reading.finds.call_open else reading.source.unsettled
        self._stop_reading(reading)
        self._after_tag = False
        self._offset -= len(raw)
        self._held = raw + self._held
        if self._readers.may_resume(reading, raw):
            self._malformed = True
            self._watch()
        if not reading.found_calls:
            self._gaps[self._kind] = reading.gap_before
            self._opening_shown = reading.opened > 0
            self._emit_text(self._take_held(reading.opened))

    def _enter_channel(self, header: Header) -> None:
        self._in_reasoning = header.reasoning
        self._shown = header.shown
        self._calls_here = header.calls
        self._fresh = False
        self._watch()
        if header.shown and not self._gaps.get(self._kind):
            self._gaps[self._kind] = "\n"  # two messages are not one word

    # --- text and its offsets --------------------------------------------------------------------

    def _watch(self) -> None:
        """Look for the tags that mean something in the present channel."""
        self._kind = ReasoningDelta if self._in_reasoning else TextDelta
        self._table = self._format_tags.table(
            in_reasoning=self._in_reasoning, calls=self._calls_here, malformed=self._malformed
        )
        self._plain = self._table.plain

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
