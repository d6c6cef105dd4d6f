"""Errors of the real library, in words for people who do not know it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.constraint.explained import plain_error
from engine.constraint.grammar import Tokens, compile_grammar
from engine.messages import Constraint
from engine.step.grammar_state import GrammarError

POCKET = Path(__file__).resolve().parents[3] / "pocket/weights"
WORDS = r"word boundaries (\b, \B, \<, \>) are not supported in a regex"
ENDS = "in a regex, ^ and $ are supported only at its ends, and without the flag m"


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(POCKET, vocab_size=None, eos_token_ids=frozenset())


def error_of(grammar: str, tokens: Tokens) -> str:
    with pytest.raises(GrammarError) as caught:
        compile_grammar(Constraint(grammar=grammar, row_items=300), tokens)
    return str(caught.value)


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        (r"\bfoo\b", WORDS),
        (r"a\Bb", WORDS),
        (r"\<a", WORDS),
        ("x" * 1000 + r"\b", WORDS),
        ("a^b", ENDS),
        ("(?m)^a$", ENDS),
        ("(?=a)b", "the regex is invalid: look-around, including look-ahead and look-behind, is "),
        (r"(a)\1", "the regex is invalid: backreferences are not supported"),
        ("[", "the regex is invalid: unclosed character class"),
        (r'" (in regex): \b', WORDS),
        ("Resource '" * 6000 + r"\b", WORDS),
        ("(" + r"\." * 30_000, "the regex is invalid: unclosed group"),
        ("(Resource 'x' is not present in a registry", "the regex is invalid: unclosed group"),
    ],
)
def test_a_regex_that_cannot_be_matched(regex: str, words: str, tokens: Tokens) -> None:
    assert error_of(f"%llguidance {{}}\nstart: /{regex}/\n", tokens).startswith(words)


OUTSIDE = (
    "the reference '%s' leads to another document; only those within the schema, such as "
    "'#/$defs/name', are supported"
)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"p": {"$ref": "http://x/y"}}}, OUTSIDE % "http://x/y"),
        ({"$ref": "other.json"}, OUTSIDE % "other.json"),
        ({"type": "foo"}, "the JSON schema cannot be compiled: Invalid type: foo"),
        ({"$ref": "it's.json"}, OUTSIDE % "it's.json"),
        ({"$ref": "http://x/" + "y" * 20_000}, OUTSIDE % ("http://x/" + "y" * 191)),
        (
            {"pattern": "(Resource 'https://evil' is not present in a registry"},
            "the JSON schema cannot be compiled: the regex is invalid: unclosed group",
        ),
        (
            {"pattern": "(" + "Resource '" * 20_000},
            "the JSON schema cannot be compiled: the regex is invalid: unclosed group",
        ),
        (
            {"type": "Resource 'https://evil' is not present in a registry"},
            "the JSON schema cannot be compiled: Invalid type: Resource 'https://evil' is not "
            "present in a registry",
        ),
        (
            {"pattern": "("},
            "the JSON schema cannot be compiled: the regex is invalid: unclosed group",
        ),
    ],
)
def test_a_schema_that_cannot_be_compiled(schema: Any, words: str, tokens: Tokens) -> None:
    grammar = f"%llguidance {{}}\nstart: %json {json.dumps(schema)}\n"
    assert error_of(grammar, tokens) == words


@pytest.mark.parametrize(
    ("lark", "words"),
    [
        ('start: "a"\n  nothing', "line 2, column 10: Expected token"),
        ("start: nothing", 'line 1, column 8: unknown name: "nothing"'),
        ("start: /\\b/", f"line 1, column 8: {WORDS}"),
    ],
)
def test_a_grammar_of_the_client_has_lines(lark: str, words: str, tokens: Tokens) -> None:
    own = {"lark_grammar": "%llguidance {}\nstart: @client\n"}
    grammars = {"grammars": [own, {"name": "client", "lark_grammar": lark}]}
    assert error_of(json.dumps(grammars), tokens).startswith(words)


@pytest.mark.parametrize("has_place", [True, False])
def test_another_error_stays_as_it_is(has_place: bool) -> None:
    for error in ("", "no start rule found", "look at 3(5): it"):
        assert plain_error(error, has_place=has_place) == error
