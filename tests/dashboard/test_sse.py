"""Events come out whole, however the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dashboard.sse import EventDecoder


def decode(*blocks: bytes) -> list[str]:
    decoder = EventDecoder()
    return [event for block in blocks for event in decoder.feed(block)]


def test_an_event_ends_at_its_empty_line() -> None:
    assert decode(b"data: a\n\ndata: b\n") == ["a"]


def test_lines_may_end_in_cr_or_crlf() -> None:
    assert decode(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n") == ["a", "b", "c"]


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    assert decode(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_comments_and_other_fields_are_no_data() -> None:
    assert decode(b": keep-alive\n\nevent: x\nid: 3\ndata:a\n\n") == ["a"]


def test_a_line_separator_inside_text_is_text() -> None:
    assert decode('data: {"a":"x\u2028y\x85"}\n\n'.encode()) == ['{"a":"x\u2028y\x85"}']


TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@given(st.lists(TEXT, max_size=5), st.lists(st.integers(0, 200), max_size=8), st.data())
def test_any_cuts_give_the_same_events(
    events: list[str], cuts: list[int], data: st.DataObject
) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    # One byte more, so that a closing CR is known not to be half of a CRLF.
    stream = "".join(f"data: {event}{end}{end}" for event in events).encode() + b":"
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    blocks = [stream[a:b] for a, b in pairwise(edges)]
    assert decode(*blocks) == events
