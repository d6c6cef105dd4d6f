"""Text that has arrived and is not yet in the log, and how it gets there with its tokens."""

from __future__ import annotations

from service.output.events import Event, ReasoningDelta, TextDelta
from service.output.spans import TokenSpans


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
        self._gaps: dict[type[Event], str] = {}  # pending white space, by the kind of text

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
        if space and self._shown:
            self._gaps[self._kind] = self._gaps.get(self._kind, "") + space

    def _cover_dropped(self) -> None:
        """Let no further event cover the tokens of what was dropped."""
        self.covered = max(self.covered, self._spans.tokens_within(self._offset))

    def _emit_text(self, text: str) -> None:
        if text and self._shown and self._kind is TextDelta:
            self._cover_dropped()  # reasoning covers its opening tag, too
        self._offset += len(text)
        if not text or not self._shown:
            return
        if self._gaps and (gap := self._gaps.pop(self._kind, "")) and self._kind in self._begun:
            text = gap + text
        end = self._spans.tokens_before(self._offset)
        self._events.append(self._kind(text, self.covered, end))
        self.covered = end
