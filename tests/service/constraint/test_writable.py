r"""A JSON string follows its pattern as Python reads it, whatever the pattern says of quotation
marks, backslashes and control characters."""

from __future__ import annotations

import functools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.constraint.grammar import compile_grammar
from engine.messages import Constraint
from engine.step.grammar_state import GrammarError
from service.constraint.schema_grammar import schema_grammar
from service.constraint.writable import is_writable, writable
from tests.service.constraint.grammars import enforced, tokenizer, tokens

CHARS = list('"\\abZ][- \n\t\b\x00\x01\x7fé')
TEXTS = ["", *CHARS, "aa", 'a"', '""', "\\\\", '\\"', "a\n", "a\x01", "a\x01b", "ab", "]a"]


def allowed(pattern: str) -> list[str]:
    """The texts that a string with this pattern may be, of those that can be written."""
    try:
        written = _written(pattern)
    except GrammarError as error:
        if "Unsatisfiable" not in str(error):
            raise
        written = set()
    return [text for text in TEXTS if text in written]


def _written(pattern: str) -> set[str]:
    source = f"start: {schema_grammar({'type': 'string', 'pattern': pattern})}\n"
    matcher = compile_grammar(Constraint(grammar=source), tokens())
    found = set()
    for text in TEXTS:
        for spelling in spellings(text):
            matcher.reset()
            ids = tokenizer().encode(spelling, add_special_tokens=False).ids
            if matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting():
                found.add(text)
    return found


@functools.cache
def spellings(text: str) -> list[str]:
    """As a string with all escapes, and with its control characters as they are."""
    escaped = json.dumps(text, ensure_ascii=False)
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return [escaped, f'"{plain}"']


ITEMS = st.sampled_from(
    [
        *('"', r"\\", "a", "Z", r"\]", r"\[", r"\-", r"\n", r"\t", r"\x00", r"\x01", r"\x7f"),
        *(r"\x00-\x1f", r"\x00-\x08", r"\x09-\x1f", " -~", "!-b", r"\x00-\x7f", r"\d", r"\w"),
        *(r"\D", r"\W", r"\S", "é", r"\u0001", "\x02", "\n"),
    ]
)
CLASSES = st.builds(
    "[{}{}{}]".format,
    st.sampled_from(["", "^", "^", "^"]),
    st.sampled_from(["", "", "]", "-"]),
    st.lists(ITEMS, min_size=1, max_size=3).map("".join),
)
ATOMS = CLASSES | st.sampled_from(
    [
        "a",
        "b",
        ".",
        r"\\",
        '"',
        r"\n",
        r"\x01",
        "\x01",
        r"\u0001",
        r"\a",
        r"\v",
        r"\S",
        r"\D",
        r"\W",
    ]
)
PATTERNS = st.recursive(
    st.builds("{}{}".format, ATOMS, st.sampled_from(["", "", "?", "*", "{1,2}"])),
    lambda part: (
        st.lists(part, min_size=1, max_size=3).map("".join)
        | st.lists(part, min_size=2, max_size=3).map("|".join).map("(?:{})".format)
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(PATTERNS)
def test_strings_follow_their_pattern_as_python_reads_it(inner: str) -> None:
    meant = re.compile(inner, re.ASCII)
    assert allowed(f"^(?:{inner})$") == [
        text for text in TEXTS if is_writable(text) and meant.fullmatch(text)
    ], inner


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"^\P{Po}$", ["a", "b", "Z", "]", "[", "-", " ", "\n", "\t", "\b", "é"]),
        (r"^\p{Cc}$", ["\n", "\t", "\b"]),
        (r'^[\x00-\x7f&&[^"a-z]]$', ["\\", "Z", "]", "[", "-", " ", "\n", "\t", "\b"]),
        (r"^[[:cntrl:]a]$", ["a", "\n", "\t", "\b"]),
        ('^[^[a-zA-Zé"]]$', ["\\", "]", "[", "-", " ", "\n", "\t", "\b"]),
        (r"^[^]\\a-zA-Zé\s]$", ['"', "[", "-", "\b"]),
        (r"^[^-\]a-zA-Zé\s]$", ['"', "\\", "[", "\b"]),
        (r'(?i)^[^"z\\]$', ["a", "b", "]", "[", "-", " ", "\n", "\t", "\b", "é"]),
        (
            '(?x) ^ [^ ] " # no quotes [\n a-z \\[ ] $ # [\x01',
            ["\\", "Z", "-", " ", "\n", "\t", "\b", "é"],
        ),
        ('^(?x: [^"\\[\\]\\s] # [^\n )$', ["\\", "a", "b", "Z", "-", "\b", "é"]),
        (r"^(?:\x{1}|\u{1}|\U00000001|b)$", ["b"]),
    ],
)
def test_the_syntax_that_only_the_engine_knows_is_kept(pattern: str, texts: list[str]) -> None:
    assert allowed(pattern) == texts


@pytest.mark.parametrize(
    "regex",
    ["^[a-z0-9_]+$", r"^\d{4}-[\w.\-]*$", "(?i)^a|b$", r"\[\^]", "", "(?P<n>[é-ü])", r"\s\S\n"],
)
def test_a_regex_that_names_no_such_character_stays_as_it_is(regex: str) -> None:
    assert writable(regex) == regex


@pytest.mark.parametrize("regex", ["[", "[^", "a[^]", "[a\\", "(?x)[#", ")", "(?x", r"\x{", r"\p{"])
def test_an_unsound_regex_stays_unsound(regex: str) -> None:
    with pytest.raises(GrammarError):
        enforced({"type": "string", "pattern": regex}, '"a"')


def test_long_patterns_take_linear_time() -> None:
    for part in ("[", "[^", "[^a]", "(", r"\x01", "(?x)[#"):
        assert len(writable(part * 20_000)) >= 20_000


def test_names_of_properties_follow_their_patterns_too() -> None:
    schema = {
        "type": "object",
        "patternProperties": {'^[^"]$': {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    assert enforced(schema, '{"a": 1, "\\"": "b"}')
    assert not enforced(schema, '{"\\"": 1}')
    assert not enforced(schema, '{"a": "b"}')
