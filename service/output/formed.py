"""Parses outputs whose answer has a form: from its first character on, it is text to its end.

A form may allow texts that look like tags, if the format's tags are not special tokens. Before the
answer come the tags that its grammar allows there: those of reasoning, and special tokens without
meaning; calls may come instead of it.
"""

from __future__ import annotations

from typing import Any

from service.formats import PLAIN
from service.output.parser import OutputParser
from service.output.reading import OpenReading
from service.output.tags import FormatTags


class FormedParser(OutputParser):
    """For formats without channels."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._begun_form = False
        super().__init__(*arguments, **more)
        self._bare_reasoning = ""

    def _is_ahead(self) -> bool:
        """True if the answer may begin with the next text."""
        return not (self._begun_form or self._in_reasoning or self.calls.begun)

    def _is_free(self) -> bool:
        return not self._is_ahead() and super()._is_free()

    def _step_text(self) -> bool:
        if self._is_ahead() and self._begins_here(self._held.lstrip()):
            self._begin_form()
        return super()._step_text()

    def _begins_here(self, rest: str) -> bool:
        bare = self._tags.bare if self._tags is not None and self._fresh else ""
        if not rest or rest[0] == bare:
            return False
        found = self._table.first(self._held, self._offset, self._spans)
        if found is None:
            return self._table.possible(rest) < len(rest)
        start, tag = found
        return start > len(self._held) - len(rest) or not self._format_tags.precedes(tag)

    def _release(self, reading: OpenReading) -> None:
        is_ahead = self._is_ahead()
        super()._release(reading)
        if is_ahead:
            self._begin_form()

    def _begin_form(self) -> None:
        self._begun_form = True
        self._format_tags = FormatTags(PLAIN, None)
        self._fresh = self._malformed = False
        self._watch()
