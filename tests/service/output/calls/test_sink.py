"""Names that a tool can have."""

from __future__ import annotations

import pytest

from service.output.calls.sink import MAX_NAME_CHARS, check_name
from service.output.calls.source import NotACallError


@pytest.mark.parametrize("name", ["f", "functions.get_weather:0", "größe", "a" * MAX_NAME_CHARS])
def test_any_word_may_be_a_name_unless_it_must_be_known(name: str) -> None:
    check_name(name, {}, known=False)
    check_name(name, {name: None}, known=True)
    with pytest.raises(NotACallError):
        check_name(name, {"other": None}, known=True)


@pytest.mark.parametrize(
    "name", ["", "two words", "a\nb", "<f>", '"f"', "{}", "a|b", "`f`", "a" * (MAX_NAME_CHARS + 1)]
)
def test_white_space_and_markup_are_in_a_name_only_if_a_tool_has_it(name: str) -> None:
    check_name(name, {name: None}, known=False)
    check_name(name, {name: None}, known=True)
    with pytest.raises(NotACallError):
        check_name(name, {"f": None}, known=False)
