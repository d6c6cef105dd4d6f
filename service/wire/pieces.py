"""JSON and events in bounded pieces, so that nothing long is encoded at once.

An envelope is encoded at once, with a hole for each part that may be long; the parts are encoded
lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

GATHERED_BYTES = 64 * 1024
_MARK = b"\0"

# A placeholder for a long part of an envelope, in any field. JSON text has no control characters,
# so it is unambiguous.
HOLE: Any = msgspec.Raw(_MARK)


def filled(envelope: bytes, fillings: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the envelope with its holes filled."""
    first, *others = envelope.split(_MARK)
    yield first
    for filling, text in zip(fillings, others, strict=True):
        yield from filling
        yield text


def array(items: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield a JSON array whose items come in pieces."""
    comma = b"["
    for item in items:
        yield comma
        yield from item
        comma = b","
    yield b"]" if comma == b"," else b"[]"


def gathered(pieces: Iterable[bytes], size: int = GATHERED_BYTES) -> Iterator[bytes]:
    """Join the pieces to about ``size`` bytes each: the last may be shorter, and longer ones are
    kept as they are."""
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
