"""Text gets the tokens that made it, and the white space between two stretches of it."""

from __future__ import annotations

from service.output.events import Event, ReasoningDelta, TextDelta
from service.output.held_text import HeldText
from service.output.spans import TokenSpans


def arrived(*pieces: str) -> tuple[HeldText, list[Event]]:
    """Each piece is a token."""
    spans = TokenSpans()
    log: list[Event] = []
    text = HeldText(spans, log)
    for number, piece in enumerate(pieces, start=1):
        spans.push(len(piece), number)
        text._held += piece
    return text, log


def test_text_covers_the_tokens_after_what_was_dropped_before_it() -> None:
    text, log = arrived("<a", ">\nb", "c")
    text._drop(3)
    text._leave_gap(1)
    text._emit_text(text._take_held(1))
    text._emit_text(text._take_held(1))
    assert log == [TextDelta("b", 1, 2), TextDelta("c", 2, 3)]


def test_reasoning_covers_its_opening_tag_too() -> None:
    text, log = arrived("<a>", "b", "</a>", "c")
    text._kind = ReasoningDelta
    text._drop(3)
    text._emit_text(text._take_held(1))
    text._drop(4)
    text._cover_dropped()
    assert log == [ReasoningDelta("b", 0, 2)]
    assert text.covered == 3


def test_white_space_next_to_a_tag_is_kept_between_two_texts_of_a_kind() -> None:
    text, log = arrived("\n", "a", "\n", "b")
    for _ in range(2):
        text._leave_gap(1)
        text._emit_text(text._take_held(1))
        text._begun.add(TextDelta)
    assert log == [TextDelta("a", 1, 2), TextDelta("\n", 2, 3), TextDelta("b", 3, 4)]


def test_white_space_has_its_own_tokens_without_those_of_the_tag() -> None:
    text, log = arrived("a", "\n", "<b>", "\n\nc", "d")
    text._emit_text(text._take_held(1))
    text._begun.add(TextDelta)
    text._leave_gap(1)
    text._drop(3)
    text._leave_gap(2)
    text._emit_text(text._take_held(2))
    # The first of two that one token completes has it.
    assert log[1:] == [TextDelta("\n", 1, 2), TextDelta("\n\n", 3, 4), TextDelta("cd", 4, 5)]


def _read_reasoning(text: HeldText) -> None:
    """Read a text, white space, and reasoning with its tags."""
    text._emit_text(text._take_held(1))
    text._begun.add(TextDelta)
    text._leave_gap(1)
    text._kind = ReasoningDelta
    text._drop(3)
    text._emit_text(text._take_held(1))
    text._drop(4)
    text._kind = TextDelta


def test_white_space_before_reasoning_is_neither_the_reasoning_s_nor_an_event_after_it() -> None:
    text, log = arrived("a", "\n", "<b>", "c", "</b>", "d")
    _read_reasoning(text)
    text._emit_text(text._take_held(1))
    assert log[1:] == [ReasoningDelta("c", 2, 4), TextDelta("\nd", 5, 6)]


def test_white_space_keeps_its_order() -> None:
    text, log = arrived("a", " ", "<b>", "c", "</b>", "\n", "d")
    _read_reasoning(text)
    text._leave_gap(1)
    text._emit_text(text._take_held(1))
    assert log[2:] == [TextDelta(" \n", 5, 6), TextDelta("d", 6, 7)]
