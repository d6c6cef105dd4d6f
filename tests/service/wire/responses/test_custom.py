"""A custom tool's text comes out of its JSON as the model writes it, wherever that is cut."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.responses.custom import CustomInput


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


def read(pieces: list[str]) -> list[str]:
    custom = CustomInput()
    return [*(custom.feed(piece) for piece in pieces), custom.end()]


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=60),
    st.booleans(),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_the_text_is_what_json_says_it_is(text: str, ascii_only: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert "".join(read(pieces_of(arguments, cuts))) == text


def test_text_streams_before_its_end_is_known() -> None:
    custom = CustomInput()
    assert custom.feed('{"input": "ec') == "ec"
    assert custom.feed("ho \\") == "ho "
    assert custom.feed('n\\"') == '\n"'
    assert custom.feed('"}') == ""
    assert custom.end() == ""


def test_half_of_a_character_waits_for_the_other() -> None:
    custom = CustomInput()
    assert custom.feed('{"input": "\\ud83d') == ""
    assert custom.feed("\\ude80") == "🚀"


def test_a_half_that_stays_alone_is_replaced_and_nothing_after_it_is_lost() -> None:
    assert "".join(read(['{"input": "a\\ud83d and on"}'])) == "a\ufffd and on"
    assert "".join(read(['{"input": "\\ude80b"}'])) == "\ufffdb"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"cmd": "ls"}', '{"cmd": "ls"}'),
        ('{"why": 1, "input": "ls"}', "ls"),
        ("{}", "{}"),
        ('{"input": 5}', '{"input": 5}'),
    ],
)
def test_arguments_of_another_form_are_not_lost(arguments: str, text: str) -> None:
    assert "".join(read(list(arguments))) == text


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (r"cost \$5 and more\ntext\"", 'cost \\$5 and more\ntext"'),
        (r"x\u00", r"x\u00"),
        (r"\d+\ud83d \\ \ud83d\ude80", "\\d+\ufffd \\ 🚀"),
        (r"\$\u00e9\ud83d", "\\$é\ufffd"),
    ],
)
@pytest.mark.parametrize("end", ['"', '"}', '", "more": "x"}'])
def test_after_an_escape_that_is_none_the_text_goes_on(inside: str, text: str, end: str) -> None:
    arguments = f'{{"input": "{inside}{end}'
    assert "".join(read([arguments])) == "".join(read(list(arguments))) == text


@pytest.mark.parametrize("cut", ["", "\\", r"\u", r"\u00e", r"\ud83d", "\\ud83d\\", r"\ud83d\ude0"])
def test_an_escape_that_the_end_cuts_off_is_dropped(cut: str) -> None:
    assert "".join(read([r'{"input": "a', cut])) == "a"
    assert "".join(read([r'{"input": "\$a', cut])) == r"\$a"
