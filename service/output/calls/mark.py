"""Marks inside text that mean nothing to a client: ``foo <co>bar</co: 0:[1,2]>``."""

from __future__ import annotations

from service.output.calls.source import Source, Waiting

_MAX_MARK_CHARS = 256


def read_mark(source: Source, end: str) -> Waiting:
    """The rest of a mark. Raises NotACallError where it does not end soon, and EndOfTextError."""
    yield from source.text_until(end, limit=_MAX_MARK_CHARS)
