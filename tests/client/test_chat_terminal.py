"""What ``quire chat`` prints of what others say."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.chat_terminal import printable, run


def test_a_terminal_obeys_nothing_that_a_model_says() -> None:
    said = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\x08\u202ereversed\ud800"
    shown = "\u241b]0;title\u2407\u241b[2J<009B>31m\u2421\u240d\u2408<202E>reversed\ufffd"
    assert printable(said) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_everything_is_printed_without_control_characters(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\t\n"]


def test_ordinary_text_is_unchanged() -> None:
    text = "Grüße,\n\tworld! שלום 你好 👩‍👩‍👧 ½ …"
    assert printable(text) == text


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("http://127.0.0.1:1", api_key="geheim-\N{EURO SIGN}") == 1
    said = capsys.readouterr().err
    assert "the API key contains characters" in said
    assert "\N{EURO SIGN}" not in said
    assert "geheim" not in said
