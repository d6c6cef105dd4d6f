"""What a terminal gets of what others say."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from observability.terminal import for_terminal


def test_a_terminal_obeys_nothing_that_a_model_says() -> None:
    said = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\x08\u202ereversed\ud800"
    shown = "\u241b]0;title\u2407\u241b[2J<009B>31m\u2421\u240d\u2408<202E>reversed\ufffd"
    assert for_terminal(said) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_everything_is_printed_without_control_characters(text: str) -> None:
    shown = for_terminal(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\t\n"]


def test_ordinary_text_is_unchanged() -> None:
    text = "Grüße,\n\tworld! שלום 你好 👩‍👩‍👧 ½ …"
    assert for_terminal(text) == text
