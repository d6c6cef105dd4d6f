"""Which bare texts a schema allows. The oracle is what compiled grammars accept."""

from __future__ import annotations

from typing import Any

import pytest

from service.constraint.bare_text import (
    BeyondTextError,
    NoTextError,
    SchemaTexts,
    TextTerminals,
)
from service.constraint.lark import Rules, TooLargeError, quoted
from tests.service.constraint.grammars import accepts, grammar

END = quoted("</v>")
ROOT: dict[str, Any] = {
    "$defs": {"city": {"enum": ["Oslo", "Rome"]}, "loop": {"$ref": "#/$defs/loop"}}
}


def terminals(never_first: str = "") -> TextTerminals:
    return TextTerminals(END, Rules().check_room, never_first=never_first)


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        ({"const": "a"}, ["a"], ["b", ""]),
        ({"enum": ["a", "b</v>", "!c", 5]}, ["a"], ["b</v>", "!c", "5", ""]),
        ({"pattern": "^a+$"}, ["a", "aa"], ["b", "ba", ""]),
        ({"pattern": "a"}, ["bab", "a\n"], ["b", "a</v>"]),
        ({"pattern": "^a|b$"}, ["ax", "xb", "a"], ["xa", "bx"]),
        ({"pattern": r"^[|(^]|\\|\$$"}, ["|x", "(", "a$", "a\\b"], ["x|", "$a"]),
        ({"pattern": "(a|b)c"}, ["xacx", "bc"], ["a", "c"]),
        ({"pattern": "(^a|^b)c"}, ["acx", "bc"], ["xac", "a"]),
        ({"pattern": "(?i)^a|B$"}, ["Ax", "xb"], ["xa", "bx"]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "a\nb"], ["a", "abcd"]),
        ({"pattern": "^a", "maxLength": 2}, ["a", "ab"], ["b", "abc"]),
        ({"format": "date", "pattern": "^2"}, ["2024-02-29"], ["2023-02-29", "1999-01-01", ""]),
        ({"$ref": "#/$defs/city"}, ["Oslo", "Rome"], ["Bonn", ""]),
        (
            {"allOf": [{"$ref": "#/$defs/city"}], "pattern": "l"},
            ["Oslo"],
            ["Rome"],
        ),
        ({"anyOf": [{"const": "x"}, {"pattern": "^a"}], "maxLength": 2}, ["x", "ab"], ["b", "abc"]),
        ({"oneOf": [{"enum": ["a", "b"]}, {"const": "c"}]}, ["a", "c"], ["d"]),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["a"], ["null"]),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, ["a"], ["null"]),
    ],
)
def test_bare_text_follows_its_schema_and_never_holds_what_ends_it(
    schema: dict[str, Any], allowed: list[str], refused: list[str]
) -> None:
    terminal = terminals(never_first="!").terminal(SchemaTexts(ROOT).of(schema))
    asked = grammar(f'start: "<v>" TEXT\nTEXT: ({terminal}) "</v>"\n')
    for text in allowed:
        assert accepts(asked, f"<v>{text}</v>"), text
    for text in refused:
        assert not accepts(asked, f"<v>{text}</v>"), text


def test_a_schema_that_says_nothing_of_a_text_makes_no_terminal() -> None:
    for schema in ({"type": "string", "description": "any"}, True, {"anyOf": [{"const": "a"}, {}]}):
        assert terminals().terminal(SchemaTexts(ROOT).of(schema)) is None


def test_a_text_that_means_something_else_is_left_out() -> None:
    for schema in ({}, {"enum": ["null", "a"]}, {"pattern": "^(null|a)$"}):
        texts = SchemaTexts(ROOT).of(schema)
        terminal = terminals().terminal(texts, never=("null", "None"))
        asked = grammar(f'start: TEXT\nTEXT: ({terminal}) "</v>"\n')
        assert accepts(asked, "a</v>")
        assert not accepts(asked, "null</v>")


@pytest.mark.parametrize(
    "part",
    [
        *({"type": ["integer", "null"]}, {"type": "array"}, False),
        *({"enum": [1, 2, None]}, {"const": None}, {"const": {"a": "b"}}, {"enum": []}),
        *({"enum": ["x</v>", "null", "!c"]}, {"anyOf": [{"const": 1}, {"enum": ["null"]}]}),
    ],
)
def test_a_schema_without_a_string_that_can_be_written_has_no_terminal(part: Any) -> None:
    with pytest.raises(NoTextError):
        terminals(never_first="!").terminal(SchemaTexts(ROOT).of(part), never=("null",))


@pytest.mark.parametrize(
    ("part", "keyword"),
    [
        ({"type": "string", "pattern": "(?x) a b"}, "pattern"),
        ({"not": {"const": "a"}}, "not"),
        ({"format": "none"}, "format"),
        ({"$ref": "#/$defs/loop"}, "$ref"),
        ({"$ref": "#/$defs/none"}, "$ref"),
        ({"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, "oneOf"),
        ({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b"]}]}, "oneOf"),
        ({"anyOf": [{"minLength": size} for size in range(65)]}, "anyOf"),
    ],
)
def test_what_no_terminal_can_follow_is_named(part: Any, keyword: str) -> None:
    with pytest.raises(BeyondTextError) as beyond:
        SchemaTexts(ROOT).of(part)
    assert beyond.value.keyword == keyword


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": ["string", "null"]}, True),
        ({"type": "string"}, False),
        ({"type": ["string", "null"], "enum": ["a"]}, False),
        ({"enum": ["a", None]}, True),
        ({"const": None}, True),
        ({"const": "a"}, False),
        ({"anyOf": [{"$ref": "#/$defs/city"}, {"type": "null"}]}, True),
        ({"allOf": [{"$ref": "#/$defs/city"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/loop"}, False),
        (True, True),
    ],
)
def test_null_is_allowed_by_some_schemas(part: Any, expected: bool) -> None:
    assert SchemaTexts(ROOT).allows_null(part) == expected


@pytest.mark.parametrize("distinct", [False, True])
def test_patterns_that_multiply_are_not_followed_without_end(distinct: bool) -> None:
    first = [{"pattern": f"a{number}"} for number in range(200)]
    definitions: dict[str, Any] = {"0": {"allOf": first}}
    for level in range(1, 4):
        definitions[str(level)] = {"allOf": [{"$ref": f"#/$defs/{level - 1}"}] * 50}
    if distinct:
        definitions["1"]["allOf"].append({"allOf": [{"pattern": f"b{n}"} for n in range(200)]})
    texts = SchemaTexts({"$defs": definitions})
    if distinct:
        with pytest.raises(BeyondTextError, match="allOf"):
            texts.of({"$ref": "#/$defs/3"})
    else:
        assert [len(each) for each in texts.of({"$ref": "#/$defs/3"})] == [200]


def test_a_schema_with_more_paths_than_parts_is_read_part_by_part() -> None:
    """A thousand references at each of three levels: a thousand million paths."""
    definitions: dict[str, Any] = {"0": {"type": "integer"}}
    for level in range(1, 4):
        definitions[str(level)] = {"anyOf": [{"$ref": f"#/$defs/{level - 1}"}] * 1000}
    texts = SchemaTexts({"$defs": definitions})
    assert texts.of({"$ref": "#/$defs/3"}) == []
    assert not texts.allows_null({"$ref": "#/$defs/3"})


def test_an_enum_that_is_no_list_does_not_matter() -> None:
    assert SchemaTexts({}).allows_null({"type": ["string", "null"], "enum": 5})


def test_what_is_said_twice_is_written_once() -> None:
    definition = {"allOf": [{"anyOf": [{}] * 62}, {"anyOf": [{"enum": ["a"] * 620}] * 62}]}
    texts = SchemaTexts({"$defs": {"Z": definition}})
    found = texts.of({"$ref": "#/$defs/Z"})
    assert terminals().terminal(found) == '("a")'
    assert texts.of({"$ref": "#/$defs/Z", "description": "another"}) is found


def test_a_terminal_is_given_up_where_there_is_no_room() -> None:
    values = [f"v{number}" for number in range(600)]
    options = [{"maxLength": size} for size in range(60)]
    texts = SchemaTexts({}).of({"anyOf": options, "enum": values})
    offered: list[int] = []

    def check_room(chars: int) -> None:
        offered.append(chars)
        if chars > 10_000:
            raise TooLargeError

    with pytest.raises(TooLargeError):
        TextTerminals(END, check_room).terminal(texts)
    assert len(offered) < 5


def test_many_schemas_that_hold_together_are_not_read_without_end() -> None:
    parts = {f"{n}": {"allOf": [{"pattern": f"{m}"} for m in range(200)]} for n in range(10)}
    texts = SchemaTexts({"$defs": parts})
    together = {"allOf": [{"$ref": f"#/$defs/{name}"} for name in parts]}
    with pytest.raises(BeyondTextError, match="allOf"):
        texts.of(together)
