"""Parses marks in text that mean nothing to a client: ``foo <co>bar</co: 0:[1,2]>``."""

from __future__ import annotations

from service.output.calls.source import Source, Waiting

_MAX_MARK_CHARS = 256


def read_mark(source: Source, end: str) -> Waiting:
    """Read the rest of a mark. Raises NotACallError if it is too long, and EndOfTextError."""
    yield from source.text_until(end, limit=_MAX_MARK_CHARS)
