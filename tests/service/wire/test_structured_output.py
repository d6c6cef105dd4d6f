"""What requests say about the form of their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.constraint.request import (
    AnyJsonObject,
    Grammar,
    JsonSchema,
    NamedTool,
    OneOf,
    Regex,
)
from service.errors import InvalidRequestError
from service.wire.chat.request import decode_chat
from service.wire.completions.request import decode_completion
from service.wire.structured_output import answer_shape, tool_choice

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def chat(**fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def shape(**fields: Any) -> Any:
    asked = answer_shape(decode_chat(chat(**fields), max_choices=4))
    completion = json.dumps({"prompt": "hi", **fields}).encode()
    assert answer_shape(decode_completion(completion, max_choices=4)) == asked
    return asked


def test_each_field_gives_its_form_and_remembers_its_name() -> None:
    path = "response_format.json_schema.schema"
    named = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    assert shape() is None
    assert shape(response_format={"type": "text"}) is None
    assert shape(response_format={"type": "json_object"}) == AnyJsonObject(param="response_format")
    assert shape(response_format=named) == JsonSchema(schema=SCHEMA, param=path, strict=True)
    for prefix, fields in (("structured_outputs.", "structured_outputs"), ("guided_", None)):

        def form(kind: str, value: Any, prefix: str = prefix, inside: str | None = fields) -> Any:
            return shape(**({inside: {kind: value}} if inside else {f"{prefix}{kind}": value}))

        assert form("json", SCHEMA) == JsonSchema(schema=SCHEMA, param=f"{prefix}json")
        assert form("json", json.dumps(SCHEMA)) == form("json", SCHEMA)
        assert form("regex", "a+") == Regex(pattern="a+", param=f"{prefix}regex")
        assert form("choice", ["a"]) == OneOf(options=("a",), param=f"{prefix}choice")
        assert form("grammar", "g") == Grammar(text="g", param=f"{prefix}grammar")
    assert shape(structured_outputs={"json_object": True}) == AnyJsonObject(
        param="structured_outputs.json_object"
    )
    dense = shape(structured_outputs={"json": SCHEMA, "disable_any_whitespace": True})
    assert dense.any_whitespace is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "b"}, "guided_regex"),
        ({"guided_regex": "a", "regex": "b"}, "regex"),
        ({"guided_grammar": "a", "regex": "a"}, "regex"),
        ({"response_format": {"type": "json_object"}, "guided_json": {}}, "guided_json"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
    ],
)
def test_an_unknown_form_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        answer_shape(decode_chat(chat(**fields), max_choices=4))
    assert refused.value.param == param


def test_the_choice_of_tools() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    assert tool_choice(None) == "auto"
    assert tool_choice("any") == "required"  # Mistral's clients
    assert [tool_choice(word) for word in ("none", "auto", "required")] == [
        "none",
        "auto",
        "required",
    ]
    assert tool_choice(named) == NamedTool("f")
    for bad in ({"type": "function"}, {"type": "tool", "name": "f"}, {}, "sometimes"):
        with pytest.raises(InvalidRequestError) as refused:
            tool_choice(bad)
        assert refused.value.param == "tool_choice"
