"""Text that has arrived and is not yet in the log, and how it gets there with its tokens."""

from __future__ import annotations

from typing import NamedTuple

from service.output.events import Event, Finished, ReasoningDelta, TextDelta
from service.output.spans import TokenSpans


class Gap(NamedTuple):
    """White space next to a tag. ``start``, ``end``: the tokens that made it, which no later event
    covers; none, if it is in reasoning."""

    text: str
    start: int
    end: int


class HeldText:
    """The text of one output. ``covered``: the number of tokens that events cover so far."""

    def __init__(self, spans: TokenSpans, log: list[Event]) -> None:
        self.covered = 0
        self._spans = spans
        self._events = log
        self._held = ""
        self._offset = 0  # characters of text covered by events or dropped tags
        self._shown = True  # False: the message has another recipient, drop its text
        self._kind: type[ReasoningDelta] | type[TextDelta] = TextDelta
        self._begun: set[type[Event]] = set()  # the kinds of text emitted so far
        self._gaps: dict[type[Event], tuple[Gap, ...]] = {}  # pending, by the kind of text

    def _take_held(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        return text

    def _drop(self, size: int) -> None:
        self._offset += len(self._take_held(size))

    def _leave_gap(self, size: int) -> None:
        """Let the next ``size`` characters of white space belong to a tag, unless text follows."""
        self._add_gap(self._held[:size])
        self._drop(size)

    def _add_gap(self, space: str) -> None:
        """``space``: the next text."""
        if not space or not self._shown:
            return
        start = end = self.covered
        if self._kind is TextDelta and TextDelta in self._begun:
            start = max(start, self._spans.tokens_within(self._offset))
            end = max(start, self._spans.tokens_ahead(self._offset + len(space)))
            self.covered = end
        *before, last = self._gaps.get(self._kind) or (Gap("", start, start),)
        if last.end == start:  # one gap, however many tokens it has: a long one would take long
            last = Gap(last.text + space, last.start, end)
            self._gaps[self._kind] = (*before, last)
        else:
            self._gaps[self._kind] = (*before, last, Gap(space, start, end))

    def _cover_dropped(self) -> None:
        """Let no further event cover the tokens of what was dropped."""
        self.covered = max(self.covered, self._spans.tokens_within(self._offset))

    def _emit_text(self, text: str) -> None:
        if text and self._shown:
            gap = self._emit_gaps() if self._gaps else ""
            if self._kind is TextDelta:
                self._cover_dropped()  # reasoning covers its opening tag, too
            end = self._spans.tokens_before(self._offset + len(text))
            self._events.append(self._kind(gap + text, self.covered, end))
            self.covered = end
        self._offset += len(text)

    def _emit_gaps(self) -> str:
        """Emit pending white space before a text, as events with only its tokens. Return what of it
        is part of the next event without its tokens, because another event covers these."""
        gaps = self._gaps.pop(self._kind, ())
        if self._kind not in self._begun:
            return ""
        last = self._events[-1]
        assert not isinstance(last, Finished)
        covered, pending = last.end, ""
        for gap in gaps:
            pending += gap.text
            if self._kind is TextDelta and gap.start >= covered:
                self._events.append(TextDelta(pending, gap.start, gap.end))
                pending = ""
        return pending
