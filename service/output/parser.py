"""Incrementally parses output text into events, according to a format's description.

The same text split anywhere gives the same events once adjacent deltas are joined. A partial tag is
held back until it is complete or ruled out. Text without any tag passes through unchanged. White
space next to a tag is kept if there is text of the same kind before and after it; at the start or
end of that text it counts as part of the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.formats import Opening, OutputFormat
from service.output.call_ids import new_call_id
from service.output.calls.sink import ToolSchemas
from service.output.calls.source import EndOfTextError, NotACallError, Source
from service.output.events import Event, ReasoningDelta, TextDelta
from service.output.held_text import Gap, HeldText
from service.output.reading import CallLog, Header, OpenReading, Readers, ReasoningEnd, Subject
from service.output.spans import TokenSpans
from service.output.tags import MOST_SPACE, FormatTags, Meaning


class OutputParser(HeldText):
    """Feed text in order, then call ``finish`` once. Both append events to ``log`` as soon as they
    are certain.

    Either pass each token's text to ``feed_token``, or, if text is held back in between, push every
    piece to ``spans`` and pass the released text to ``feed``. ``opening``: what the end of the
    prompt left open. For ``tools``, ``one_token`` and ``special`` see ``FormatTags``.
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
        super().__init__(spans, log)
        self._reasoning = output_format.reasoning
        self._tags = output_format.tool_call if tools is not None else None
        self._channels = output_format.channels
        self._format_tags = FormatTags(output_format, tools, one_token, special)
        self._stops = self._format_tags.stops(spans)
        mint_id = mint_id or new_call_id(self._tags.ids if self._tags else "random")
        self.calls = CallLog(log, spans, tools or {}, mint_id)
        self._readers = Readers(output_format, self.calls, looks_for_calls=tools is not None)
        self._reading: OpenReading | None = None
        self._in_reasoning = opening is Opening.REASONING
        self._calls_here = True  # this message may contain calls
        self._after_tag = opening is not Opening.TEXT  # white space that comes next is a tag's
        self._after_reasoning = False  # the tag was one that ends reasoning
        # What the output may begin with if the opening reasoning tag is missing.
        starts = self._reasoning if opening is Opening.TEXT else None
        self._bare_reasoning = "" if starts is None else starts.bare
        self._bare_calls = self._tags is not None and bool(self._tags.bare)
        # At the start of an answer, calls or reasoning may come without their opening tag.
        self._fresh = self._bare_calls or bool(self._bare_reasoning)
        self._malformed = False  # a call was malformed; others may follow it
        self._opening_shown = False  # a tag opened no call: it and its closing tag are text
        self._watch()
        if opening is Opening.HEADER:
            self._start_header(0, "")

    def feed_token(self, text: str, tokens: int) -> None:
        """Feed the non-empty text that the ``tokens``-th output token completed."""
        if self._is_free() and self._shown and (text in self._plain or self._table.learn(text)):
            # Nothing is pending, so the span is known without a lookup.
            self._events.append(self._kind(text, self.covered, tokens))
            self.covered = tokens
            return
        self._spans.push(len(text), tokens)
        if len(self._held) <= MOST_SPACE and self._held.isspace():
            self._table.learn_spaced(self._held + text)
        self._feed_held(text)

    def plain(self) -> tuple[Mapping[str, bytes], bool, int] | None:
        """Return what ``PlainTexts`` needs of the parser, if the next text can be plain."""
        if not self._is_free() or not self._shown or self._kind is not TextDelta:
            return None
        return self._plain, self._table.holds_space, self.covered

    def feed(self, text: str) -> None:
        if self._is_free() and self._table.is_plain(text):
            self._emit_text(text)
        else:
            self._feed_held(text)

    def before_answer(self, text: str, waiting: str = "") -> int:
        """Return how many characters of ``text`` certainly precede the answer: those of reasoning
        or of a header, with its closing tag and the white space after it. A call in reasoning is
        part of the answer once it is certain to be one. ``waiting``: text before ``text`` that has
        not been fed yet."""
        if self._reading is not None and self._reading.subject is not Subject.MARK:
            channels = self._readers.form.channels
            return self._reading.before_answer(text, waiting, channels.message if channels else ())
        if self._in_reasoning:
            before = self._held + waiting
            found = self._table.first(before + text, self._offset, self._spans)
            if found is None:
                return len(text)
            return max(1, found[0] + len(found[1]) - len(before))
        # What waits belongs to the answer, and so does the white space after it.
        return len(text) - len(text.lstrip()) if self._after_reasoning and not waiting else 0

    def _is_free(self) -> bool:
        """True if nothing is pending before the next text."""
        held = self._held or self._after_tag or self._fresh or self._gaps.get(self._kind)
        return not held and self._reading is None

    def _feed_held(self, text: str) -> None:
        if self._reading is not None:
            self._reading.feed(text)
        else:
            self._held += text
        while self._step():
            pass

    def finish(self, *, truncated: bool) -> None:
        """End the text. ``truncated``: the model was cut off (``length``), so an unfinished call
        remains a call instead of becoming text."""
        while self._reading is not None:
            self._reading.source.end(truncated=truncated)
            if self._read(self._reading, truncated=truncated):
                while self._step():
                    pass
        dropped = self._table.unfinished(self._held) if truncated else 0
        self._emit_text(self._take_held(len(self._held) - dropped))

    # --- one step of the machine: True if there may be more to do ---------------------------------

    def _step(self) -> bool:
        return self._step_text() if self._reading is None else self._read(self._reading)

    def _step_text(self) -> bool:
        if (self._after_tag or self._fresh) and (started := self._step_start()) is not None:
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
        """Handle the start of a stretch of text. None: it is ordinary text."""
        rest = self._held.lstrip()
        if self._after_tag:
            self._leave_gap(len(self._held) - len(rest))
        if not rest:
            return False
        self._after_tag = self._after_reasoning = False
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
        """Process the next tag, which may follow white space."""
        if self._events and type(self._events[-1]) is self._kind:
            self._begun.add(self._kind)
        start, meaning = self._held.index(tag), self._table.meanings[tag]
        size = start + len(tag)
        if meaning is Meaning.HEADER:
            assert self._channels is not None
            self._start_header(*((start, "") if tag in self._channels.message else (size, tag)))
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
        if self._in_reasoning and meaning is Meaning.TEXT:
            self._cover_dropped()
        if meaning is not Meaning.NOTHING:
            self._switch(reasoning=meaning is Meaning.REASONING)

    def _switch(self, *, reasoning: bool) -> None:
        self._after_reasoning = self._in_reasoning and not reasoning
        self._in_reasoning = reasoning
        self._shown = self._calls_here = self._after_tag = True
        self._fresh = self._bare_calls and not reasoning
        self._watch()

    # --- readings --------------------------------------------------------------------------------

    def _start_calls(self, size: int, tag: str = "", meaning: Meaning = Meaning.CALLS) -> None:
        """``size``: length of the white space and tag before the calls. ``tag``: see
        ``Readers.calls``."""
        source, gap = self._take_source(size)
        end = ReasoningEnd(self._table, self._spans) if self._in_reasoning else None
        self._reading = self._readers.calls(source, gap, size, tag, meaning, end)

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

    def _take_source(self, size: int) -> tuple[Source, tuple[Gap, ...]]:
        """Return a source for the held text, past its first ``size`` characters, and the gap before
        it."""
        source = Source(self._held, self._offset, self._stops)
        before = source.take(size)
        gap = self._gaps.get(self._kind, ())
        self.calls.end = self.covered
        self._add_gap(before[: len(before) - len(before.lstrip())])
        self._held = ""
        return source, gap

    def _read(self, reading: OpenReading, *, truncated: bool = False) -> bool:
        """Resume the reader with the text received. False: it needs more."""
        try:
            next(reading.reader)
        except (StopIteration, NotACallError, EndOfTextError) as error:
            if reading.finds.header is not None:
                self._enter_channel(reading.finds.header)
            self.covered = self.calls.end
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
        """Treat what looked like a call as text. Later tags and calls in it still count."""
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
            # Keep two messages from running into one word.
            self._gaps[self._kind] = (Gap("\n", self.covered, self.covered),)

    def _watch(self) -> None:
        """Select the tags that have a meaning in the current channel."""
        self._kind = ReasoningDelta if self._in_reasoning else TextDelta
        self._table = self._format_tags.table(
            in_reasoning=self._in_reasoning, calls=self._calls_here, malformed=self._malformed
        )
        self._plain = self._table.plain
