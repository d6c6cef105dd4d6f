"""Long answers as JSON in pieces, each of which takes the event loop well under a millisecond.

A thread would not help: the encoder holds the interpreter's lock while it runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from observability.admin_api import KeptRequest, KvMap, Series

_RECORDS = 6  # in a piece: each may have dozens of events
_ROWS = 200
_NUMBERS = 2000

_encode = msgspec.json.Encoder().encode


def array_pieces(items: Sequence[Any], most: int = _ROWS) -> Iterator[bytes]:
    """Yield a JSON array, ``most`` items at a time."""
    yield b"["
    for start in range(0, len(items), most):
        # Without the brackets of the part.
        piece = _encode(items[start : start + most])[1:-1]
        yield piece if start == 0 else b"," + piece
    yield b"]"


def rows_pieces(rows: Sequence[Any]) -> Iterator[bytes]:
    """Yield an object with nothing but rows."""
    yield b'{"rows":'
    yield from array_pieces(rows)
    yield b"}"


def page_pieces(
    requests: Iterable[KeptRequest], cursor: str | None = None, source: str = "memory"
) -> Iterator[bytes]:
    """Yield a page of requests, which are taken a few at a time."""
    yield b'{"requests":['
    yield from request_pieces(requests)
    yield b'],"cursor":%b,"source":%b}' % (_encode(cursor), _encode(source))


def request_pieces(requests: Iterable[KeptRequest], separator: bytes = b"") -> Iterator[bytes]:
    """Yield requests as items of a JSON array. ``separator``: before the first one."""
    left = iter(requests)
    while some := list(itertools.islice(left, _RECORDS)):
        yield separator + _encode(some)[1:-1]
        separator = b","


def kv_pieces(found: KvMap) -> Iterator[bytes]:
    """Yield a map of the KV cache."""
    small = _encode(msgspec.structs.replace(found, runs=()))
    before, after = small.split(b'"runs":[]')
    yield before + b'"runs":'
    yield from array_pieces(found.runs, _NUMBERS)
    yield after


def series_pieces(series: Series) -> Iterator[bytes]:
    """Yield a history."""
    yield b'{"start":%b,"step":%b,"values":{' % (_encode(series.start), _encode(series.step))
    for number, (name, values) in enumerate(series.values.items()):
        yield (b"," if number else b"") + _encode(name) + b":"
        yield from array_pieces(values, _NUMBERS)
    yield b'},"marks":'
    yield from array_pieces(series.marks)
    yield b"}"
