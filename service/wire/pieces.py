"""JSON and events in bounded pieces, so that nothing long is encoded in one go.

An envelope is encoded at once, with a hole for each part that may be long; what fills the holes is
encoded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

GATHERED_BYTES = 64 * 1024
_MARK = b"\0"

# Stands for a long part of an envelope, in any field. JSON text has no control characters, so that
# it cannot be taken for anything else.
HOLE: Any = msgspec.Raw(_MARK)


def filled(envelope: bytes, fillings: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """The envelope, with what each of its holes stands for."""
    first, *others = envelope.split(_MARK)
    yield first
    for filling, text in zip(fillings, others, strict=True):
        yield from filling
        yield text


def array(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """A JSON array of items that come in pieces themselves."""
    comma = b"["
    for item in items:
        yield comma
        yield from item
        comma = b","
    yield b"]" if comma == b"," else b"[]"


def gathered(pieces: Iterable[bytes], size: int = GATHERED_BYTES) -> Iterator[bytes]:
    """The same bytes, joined to pieces of about ``size`` bytes: the last may be shorter, and one
    that was longer stays so."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            yield b"".join(held)
            held, length = [], 0
    if length:
        yield b"".join(held)
