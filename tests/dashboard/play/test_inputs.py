"""What a visitor writes is read, or it is said what is wrong with it."""

from __future__ import annotations

import pytest

from dashboard.apis.ask import Tool
from dashboard.play import inputs


@pytest.mark.parametrize(
    "written",
    [
        '[{"name": "f", "description": "d", "parameters": {"type": "object"}}]',
        '[{"name": "f", "description": "d", "input_schema": {"type": "object"}}]',
        '[{"type": "function", "function": {"name": "f", "description": "d"}}]',
    ],
)
def test_tools_are_read_in_each_apis_spelling(written: str) -> None:
    assert inputs.tools(written) == (Tool("f", "d", {"type": "object"}),)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('{"name": "f"}', "must be a JSON list"),
        ("[1]", "Tool 1: Expected `object`, got `int`"),
        ('[{"name": "f"}, {}]', "Tool 2: Object missing required field `name`"),
        ('[{"name": " "}]', "Tool 1: the name is empty"),
        ("[\n  {]", "line 2, column 4"),
        ('[{"name": "f", "parameters": {"maximum": NaN}}]', "NaN and infinite numbers"),
        ('[{"name": "f", "parameters": {"maximum": 1e999}}]', "NaN and infinite numbers"),
        ("[" + "9" * 4301 + "]", "4,300 digits"),
        ("[" * 60_000, "nested too deeply"),
        ('{"a":' * 400 + "1" + "}" * 400, "Tools: nested more than 100 levels deep."),
        ('[{"name": "f", "description": "\\ud83d x"}]', r"\ud83d is half of a surrogate pair"),
        ('[{"name": "f", "parameters": {"\\udc00": 1}}]', r"\udc00 is half of a surrogate pair"),
        (" " + "[" * 100_000, "at most 100,000 characters are allowed; there are 100,001"),
    ],
)
def test_what_is_wrong_with_tools_is_said(written: str, words: str) -> None:
    with pytest.raises(ValueError, match="Tool") as caught:
        inputs.tools(written)
    assert words in str(caught.value)


def test_too_many_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="At most 128 tools"):
        inputs.tools("[" + ",".join(['{"name": "f"}'] * 129) + "]")


def test_the_examples_are_read() -> None:
    assert inputs.tools(inputs.EXAMPLE_TOOLS)[0].name == "get_weather"
    assert inputs.schema(inputs.EXAMPLE_SCHEMA) is not None


def test_a_schema_is_an_object() -> None:
    assert inputs.schema("  ") is None
    with pytest.raises(ValueError, match="must be a JSON object"):
        inputs.schema("[]")


def test_stop_strings_are_lines() -> None:
    assert inputs.stops("END\n\n\\n\\n") == ("END", "\n\n")
    with pytest.raises(ValueError, match="At most 16 stop strings"):
        inputs.stops("\n".join("abcdefghijklmnopq"))


def test_documents_are_lines() -> None:
    assert inputs.documents(" a \n\nb") == ("a", "b")
