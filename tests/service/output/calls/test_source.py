"""What readers may ask of text that is still arriving."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.output.calls.source import EndOfTextError, NotACallError, Source, Stops
from tests.service.output.calls.reading import drive
from tests.service.output.parsing import cut

Reader = Callable[[Source], Generator[None, None, Any]]


def ask(reader: Reader, text: str, stops: tuple[str, ...] = ()) -> tuple[Any, str]:
    """The answer and the rest, the same whether the text comes at once or by characters."""
    answers = []
    for pieces in ([text], list(text)):
        source = Source("", 0, Stops(stops))
        answers.append(drive(reader(source), source, pieces, truncated=False))
    assert answers[0] == answers[1]
    return answers[0]


LITERALS = st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3, unique=True)


@given(
    text=st.text("ab<", max_size=24),
    literals=LITERALS,
    places=st.lists(st.integers(0, 100), max_size=6),
)
def test_everything_before_the_first_literal_is_emitted_however_the_text_is_cut(
    text: str, literals: list[str], places: list[int]
) -> None:
    """The oracle searches the whole text; of literals that begin together the longest counts."""
    longest_first = sorted(literals, key=len, reverse=True)
    found = re.search("|".join(map(re.escape, longest_first)), text)
    source = Source("", 0)
    emitted: list[str] = []
    reader = source.until(*literals, emit=emitted.append)
    if found is None:
        with pytest.raises(EndOfTextError):
            drive(reader, source, cut(text, places), truncated=False)
        assert "".join(emitted) == text
        return
    literal, rest = drive(reader, source, cut(text, places), truncated=False)
    assert (literal, rest) == (found[0], text[found.end() :])
    assert "".join(emitted) == text[: found.start()]
    assert source.offset == found.end()


@pytest.mark.parametrize(
    ("reader", "text", "answer", "rest"),
    [
        (lambda s: s.accept("<a>", "</a>"), "</a>b", "</a>", "b"),
        (lambda s: s.accept("<a>"), "<ab", None, "<ab"),
        (lambda s: s.at("<a>"), "<a>b", "<a>", "<a>b"),
        (lambda s: s.peek(3), "ab", "ab", "ab"),
        (lambda s: s.white_space(), " \n a", " \n ", "a"),
        (lambda s: s.white_space(), "  ", "  ", ""),
        (lambda s: s.white_space(), "a ", "", "a "),
        (lambda s: s.ahead(";"), " \n;x", True, " \n;x"),
        (lambda s: s.ahead(";"), " \nx", False, " \nx"),
        (lambda s: s.spells("}", ","), " }\n,x", True, " }\n,x"),
        (lambda s: s.spells("}", ","), " } ;", False, " } ;"),
        (lambda s: s.solid(1), "a \n b", (4, "b"), "a \n b"),
        (lambda s: s.solid(0), "  ", (2, ""), "  "),
        (lambda s: s.find(2, '"'), '""a"', (3, '"'), '""a"'),
        (lambda s: s.find(0, '"'), "abc", (3, None), "abc"),
    ],
)
def test_only_what_is_accepted_is_read(reader: Reader, text: str, answer: Any, rest: str) -> None:
    assert ask(reader, text) == (answer, rest)


def test_the_end_inside_a_literal_is_not_an_answer() -> None:
    with pytest.raises(EndOfTextError):
        ask(lambda source: source.at("<tool_call>"), "<tool")


def test_text_up_to_a_literal_is_bounded_and_holds_no_tag_of_the_format() -> None:
    def name(source: Source) -> Generator[None, None, str]:
        return (yield from source.text_until(">", limit=5))

    assert ask(name, "abcde>f") == ("abcde", "f")
    for text in ("abcdef>", "ab<call>cd>"):
        with pytest.raises(NotACallError):
            ask(name, text, stops=("<call>",))


def test_text_is_kept_only_while_it_may_turn_out_to_be_just_text() -> None:
    source = Source("abcdef", 10)
    source.take(2)
    assert (source.unsettled, source.rest, source.offset) == ("ab", "cdef", 12)
    source.settle()
    source.take(1)
    assert source.unsettled == ""
    source.watch()
    source.take(2)
    assert (source.unsettled, source.rest) == ("de", "f")
