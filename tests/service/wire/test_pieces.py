"""Long answers in pieces: joined, they are the JSON that was meant."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.wire.pieces import HOLE, array, filled, gathered

values = st.none() | st.integers(-9, 9) | st.text(max_size=5)


def cut(value: Any) -> list[bytes]:
    """JSON in pieces of one byte."""
    return [bytes([byte]) for byte in json.dumps(value).encode()]


@given(st.lists(values, max_size=4))
def test_an_array_of_pieces_is_a_json_array(items: list[Any]) -> None:
    assert json.loads(b"".join(array(cut(item) for item in items))) == items


@given(first=values, second=values, text=st.text(max_size=9))
def test_holes_are_filled_in_their_order(first: Any, second: Any, text: str) -> None:
    """Text of the envelope, whatever its characters, is never taken for a hole."""
    envelope = msgspec.json.encode({"a": HOLE, "text": text + "\0", "b": [HOLE]})
    whole = b"".join(filled(envelope, [cut(first), cut(second)]))
    assert json.loads(whole) == {"a": first, "text": text + "\0", "b": [second]}


@given(pieces=st.lists(st.binary(max_size=12), max_size=12), size=st.integers(1, 16))
def test_gathered_pieces_are_the_same_bytes_and_none_but_the_last_is_short(
    pieces: list[bytes], size: int
) -> None:
    made = list(gathered(pieces, size))
    assert b"".join(made) == b"".join(pieces)
    assert all(len(piece) >= size for piece in made[:-1])
    longest = max(map(len, pieces), default=0)
    assert all(0 < len(piece) < size + longest for piece in made)


def test_pieces_are_made_on_demand() -> None:
    made = []

    def endless() -> Any:
        while True:
            made.append(1)
            yield b"abcd"

    assert next(gathered(endless(), 8)) == b"abcdabcd"
    assert len(made) == 2
