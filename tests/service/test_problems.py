"""Errors of msgspec in words."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from service.problems import problem_in


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    most: Annotated[int, Meta(ge=1)] = 1
    name: str = ""


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    keys: tuple[Entry, ...] = ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"most": 0}, "most: expected int >= 1"),
        ({"most": "x"}, "most: expected int, got str"),
        ({"mots": 1}, "there is no field 'mots'; the fields are most, name"),
    ],
)
def test_the_field_and_what_is_allowed_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Entry)
    assert problem_in(caught.value, Entry) == words
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"keys": [{}, given]}, Whole)
    of_item = words.replace("most: ", "keys[2].most: ").replace("there", "keys[2]: there")
    assert problem_in(caught.value, Entry) == of_item
