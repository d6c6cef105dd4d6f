"""Frames out of a byte stream."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frames import FrameReader, FrameTooLargeError


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_the_same_bytes_cut_anywhere_give_the_same_frames(
    bodies: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(framed(body) for body in bodies)
    reader = FrameReader()
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


def test_a_header_that_is_too_large_is_refused_before_its_body_comes() -> None:
    reader = FrameReader(max_frame_bytes=100)
    assert reader.feed(framed(b"x" * 100)) == [b"x" * 100]
    with pytest.raises(FrameTooLargeError, match="101"):
        reader.feed(struct.pack("<I", 101))
