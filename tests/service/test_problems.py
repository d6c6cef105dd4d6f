"""Errors of msgspec in words."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from service.problems import IN_WORDS, Problem, plain, problem_in


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    share: Annotated[float, Meta(gt=0)] = 1.0
    name: Annotated[str, Meta(min_length=1, max_length=3, pattern="^[a-z]+$")] = "a"
    colours: Annotated[tuple[Colour, ...], Meta(max_length=2)] | None = None
    level: Literal["low", "high"] | None = None
    alias: Annotated[str, Meta(pattern="^[a-z]{1,3}$", extra={IN_WORDS: "1 to 3 of a-z"})] = "a"
    digest: Annotated[str, Meta(pattern="^[0-9]$", extra={IN_WORDS: "a digit"})] | None = None


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    keys: tuple[Entry, ...] = ()
    more: int | str = 0


class Needed(msgspec.Struct):
    level: str


def problem(given: object, kind: type[Any]) -> Problem:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, kind)
    return problem_in(caught.value, kind, whole="the body")


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"most": 0}, "most", "must be a whole number, at least 1"),
        ({"most": 2_000_000}, "most", "must be a whole number, at most 1,000,000"),
        ({"most": "x"}, "most", "must be a whole number, not text"),
        ({"share": 0}, "share", "must be a number, greater than 0"),
        ({"share": []}, "share", "must be a number, not a list"),
        ({"name": "abcd"}, "name", "must be text, with a length of at most 3"),
        ({"name": "A"}, "name", "must be text that matches '^[a-z]+$'"),
        ({"alias": "A"}, "alias", "must be 1 to 3 of a-z"),
        ({"digest": "x"}, "digest", "must be a digit"),
        ({"colours": {}}, "colours", "must be a list or null, not an object"),
        ({"colours": ["red", "green"]}, "colours[2]", "must be one of red, blue"),
        ({"level": "middle"}, "level", "must be one of "),
    ],
)
def test_the_field_and_what_is_allowed_are_named(
    given: dict[str, Any], field: str, words: str
) -> None:
    found = problem(given, Entry)
    assert found.field == field
    assert found.text.startswith(f"'{field}' {words}")
    of_item = problem({"keys": [{}, given]}, Whole)
    assert of_item.field == f"keys[2].{field}"
    assert of_item.text.startswith(f"'keys[2].{field}' {words}")


def test_unknown_and_missing_fields_are_named_with_those_that_there_are() -> None:
    known = "most, share, name, colours, level, alias, digest"
    assert problem({"mots": 1}, Entry) == (
        "mots",
        f"the body has no field 'mots'; it may have {known}",
    )
    assert problem({"keys": [{"mots": 1}]}, Whole) == (
        "keys[1].mots",
        f"'keys[1]' has no field 'mots'; it may have {known}",
    )
    assert problem({}, Needed) == ("level", "'level' is missing")


@pytest.mark.parametrize("name", ["a - at $.x", "a - at $[" + "9" * 5000 + "]", "a - at `$.x`"])
def test_the_name_of_an_unknown_field_is_not_taken_for_a_path(name: str) -> None:
    found = problem({name: 1}, Entry)
    assert found.field == name.replace("`", "")[:64]


def test_the_whole_and_several_types_have_words_too() -> None:
    assert problem([], Whole) == ("", "the body must be an object, not a list")
    assert problem({"more": []}, Whole) == (
        "more",
        "'more' must be a whole number or text, not a list",
    )


def test_numbers_are_written_as_people_do() -> None:
    assert [plain(number) for number in (1e6, 0.001, 5, 1e15)] == [
        *("1,000,000", "0.001", "5", "1,000,000,000,000,000"),
    ]
