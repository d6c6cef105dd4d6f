"""Texts and patterns written into grammars mean what they meant before."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import MAX_GRAMMAR_CHARS
from service.constraint.lark import Rules, TooLargeError, literal, pattern, quoted, tag
from tests.examples import examples
from tests.service.constraint.grammars import accepts, grammar, spelled, token_id

# The text of a tag is not the tag: it is spelled like any other text.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


def of(term: str) -> str:
    return f"%llguidance {{}}\nstart: X\nX: {term}\n"


@given(TEXT)
@settings(max_examples=examples(60), deadline=None)
def test_a_literal_is_exactly_its_text(text: str) -> None:
    assert spelled(grammar(of(literal(text))), text)
    assert not spelled(grammar(of(literal(text))), text + "!")


@given(TEXT)
@settings(max_examples=examples(60), deadline=None)
def test_a_quoted_text_matches_itself_alone(text: str) -> None:
    assert spelled(grammar(of(pattern(quoted(text)))), text)
    assert not spelled(grammar(of(pattern(quoted(text)))), text + text)


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        ("a/b", "a/b"),
        (r"a\/b", "a/b"),
        ("[/]x", "/x"),
        (r"\\/", "\\/"),
        ("a\nb", "a\nb"),
        ("a\\\nb", "a\nb"),
        ("^ab$", "ab"),
        ("a#b//c", "a#b//c"),
        ("", ""),
        ('"q"', '"q"'),
        (r"\d{3}-\d{2}", "123-45"),
        ("(?i)yes|no", "YES"),
    ],
)
def test_a_pattern_keeps_its_meaning(regex: str, text: str) -> None:
    assert accepts(grammar(of(pattern(regex))), text)
    assert not accepts(grammar(of(pattern(regex))), text + "~")


@given(st.lists(st.sampled_from(["a", "<", "tool", "_call>", "/", "<tool_call", ">", "é"])))
@settings(max_examples=examples(60), deadline=None)
def test_free_text_is_anything_but_the_tags_spelled_out(parts: list[str]) -> None:
    rules = Rules()
    text = rules.text(tag("<tool_call>", lambda _: None))
    said = "".join(parts)
    expected = re.search("<tool_call>", said) is None
    assert spelled(grammar(rules.source(text)), said) == expected


@pytest.mark.parametrize("known", [True, False], ids=["a token", "text"])
def test_text_to_a_tag_ends_at_the_first_one(known: bool) -> None:
    rules = Rules()
    end = tag("</think>" if known else "[end]", token_id)
    source = grammar(rules.source(f'{rules.text_to(end)} "!"'))
    assert accepts(source, f"hm, so{end.text}!")
    assert accepts(source, f"{end.text}!")
    assert not accepts(source, f"hm{end.text}hm{end.text}!")


def test_text_to_a_tag_of_several_tokens_ends_where_they_all_stand() -> None:
    """Such as <|close|>think<|sep|>, of which two parts are tokens."""
    rules = Rules()
    end = tag("</think>x<tool_call>", token_id)
    source = grammar(rules.source(f'{rules.text_to(end)} "!"'))
    assert accepts(source, f"hm, so{end.text}!")
    assert not accepts(source, "hm</think>y<tool_call>!")


def test_rules_have_no_more_room_than_a_constraint() -> None:
    rules = Rules()
    rules.add("x" * (MAX_GRAMMAR_CHARS - 1))
    rules.check_room(1)
    for too_much in (lambda: rules.check_room(2), lambda: rules.add("xx")):
        with pytest.raises(TooLargeError):
            too_much()
