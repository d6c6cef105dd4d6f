"""Counts the fields of a serialized message, in all its parts, before one is allocated.

Two bytes can encode "one more message", which takes a hundred bytes of memory, so the size of a
request alone does not limit it.
"""

from __future__ import annotations

import functools
from typing import Any

# A conversation with the maximum number of messages over HTTP has half of these.
MAX_FIELDS = 131_072

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5

_Nested = dict[int, Any]


class TooManyFieldsError(ValueError):
    pass


def check_fields(data: bytes, kind: Any) -> None:
    """``kind``: the generated class of the message. Raises TooManyFieldsError, or ValueError for an
    invalid message."""
    left = MAX_FIELDS
    parts = [(0, len(data), _nested(kind.DESCRIPTOR))]
    try:
        while parts:
            at, end, nested = parts.pop()
            while at < end:
                left -= 1
                if left < 0:
                    raise TooManyFieldsError
                tag, at = _varint(data, at)
                begin, at = _skip(data, at, tag & 7)
                inner = nested.get(tag >> 3) if tag & 7 == _DELIMITED else None
                if inner is not None:
                    parts.append((begin, at, _nested(inner)))
            if at > end:
                raise ValueError("a field ends after its message")
    except IndexError:
        raise ValueError("the message ends within a field") from None


def _skip(data: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return where a field's value begins and ends."""
    if wire_type == _DELIMITED:
        size, at = _varint(data, at)
        return at, at + size
    if wire_type == _VARINT:
        return at, _varint(data, at)[1]
    if wire_type == _FIXED64:
        return at, at + 8
    if wire_type == _FIXED32:
        return at, at + 4
    raise ValueError("groups are not supported")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and where it ends. Raises IndexError past the data's end."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


@functools.cache
def _nested(descriptor: Any) -> _Nested:
    """Return the message types among its fields, by number."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.message_type is not None
    }
