"""Properties that a schema does not name are not written, and whatever is written still matches."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from service.constraint.closed import closed
from service.constraint.schema import enforceable
from service.constraint.schema_grammar import schema_grammar
from tests.service.constraint.grammars import accepts, grammar

EXAMPLES = int(os.environ.get("QUIRE_FUZZ_EXAMPLES", "60"))
NAMES = ("a", "b", "c")
VALUES = (1, "x")


def allowed(schema: dict[str, Any], value: Any) -> bool:
    """Whether a model may write this under the schema."""
    written = enforceable(schema, "s").schema
    return accepts(grammar(f"start: {schema_grammar(written)}\n"), json.dumps(value))


_keywords = st.sampled_from(
    [
        *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "properties", "required", "$id"),
        *("items", "$defs", "dependentSchemas", "dependentRequired", "dependencies", "type"),
        *("minProperties", "additionalProperties", "const", "enum", "patternProperties", "a"),
    ]
)
TEXT = {"type": "string"}
A = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
B = {"type": "object", "properties": {"b": TEXT}}
KIND_A = {"type": "object", "properties": {"kind": {"const": "a"}, "a": TEXT}, "required": ["kind"]}
KIND_B = {"type": "object", "properties": {"kind": {"const": "b"}, "b": TEXT}, "required": ["kind"]}
X = "x"
AX, ABX, MORE = {"a": X}, {"a": X, "b": X}, {"a": X, "z": X}


class Base(BaseModel):
    a: str


class Node(Base):
    next: Node | None = None
    others: list[Base] = []  # pydantic copies it


@pytest.mark.parametrize(
    ("schema", "written", "not_written"),
    [
        pytest.param(A, [AX], [MORE], id="properties"),
        pytest.param({"type": "array", "items": A}, [[AX]], [[AX, MORE]], id="items"),
        pytest.param({"properties": {"o": A}}, [{"o": AX}], [{"o": MORE}], id="inner"),
        pytest.param({"type": "object"}, [{}, MORE], [], id="names nothing"),
        pytest.param({"required": ["a"]}, [AX, MORE], [], id="names no property's schema"),
        pytest.param({**A, "required": ["a", "r"]}, [{**AX, "r": 1}], [AX], id="required"),
        pytest.param({**A, "additionalProperties": True}, [MORE], [], id="said: any"),
        pytest.param({**A, "additionalProperties": TEXT}, [MORE], [{**AX, "z": 1}], id="said"),
        pytest.param({**A, "patternProperties": {"^z": TEXT}}, [MORE], [], id="said: pattern"),
        pytest.param({**A, "unevaluatedProperties": True}, [MORE], [], id="said: unevaluated"),
        pytest.param({**A, "unevaluatedProperties": False}, [AX], [MORE], id="said: none"),
        pytest.param({**A, "minProperties": 2}, [MORE], [], id="must be more"),
        pytest.param({"anyOf": [A, {"type": "null"}]}, [AX, None], [MORE], id="nullable"),
        pytest.param({"anyOf": [A, B]}, [AX, {"b": X}], [ABX, MORE], id="anyOf"),
        pytest.param({"allOf": [A, B]}, [AX, ABX], [MORE], id="allOf"),
        pytest.param({"allOf": [A], "title": "t"}, [AX], [MORE], id="allOf of one"),
        pytest.param({**A, "allOf": [B]}, [AX, ABX], [MORE], id="allOf beside"),
        pytest.param(
            {**A, "anyOf": [{"required": ["b"]}, B]}, [AX, {"a": X, "b": X}], [MORE], id="beside"
        ),
        pytest.param(
            {"oneOf": [KIND_A, KIND_B]},
            [{"kind": "a", "a": X}, {"kind": "b", "b": X}],
            [{"kind": "a", "b": X}, {"kind": "b", "z": X}],
            id="discriminated",
        ),
        pytest.param({"$ref": "#/$defs/A", "$defs": {"A": A}}, [AX], [MORE], id="reference"),
        pytest.param(
            {"$ref": "#/$defs/A", "properties": {"b": TEXT}, "$defs": {"A": A}},
            [AX, ABX],
            [MORE],
            id="beside a reference",
        ),
        pytest.param(
            {"allOf": [{"$ref": "#/$defs/A"}, B], "$defs": {"A": A}}, [ABX], [MORE], id="inherited"
        ),
        pytest.param(
            Node.model_json_schema(),
            [{"a": X, "next": {"a": X, "next": None}, "others": [AX]}],
            [{"a": X, "next": MORE}, {"a": X, "others": [MORE]}, MORE],
            id="pydantic",
        ),
        pytest.param({"enum": [MORE], "properties": {"a": TEXT}}, [MORE], [AX], id="whole values"),
    ],
)
def test_only_named_properties_are_written(
    schema: dict[str, Any], written: list[Any], not_written: list[Any]
) -> None:
    for value in written:
        assert Draft202012Validator(schema).is_valid(value), value
        assert allowed(schema, value), value
    for value in not_written:
        assert not allowed(schema, value), value


def test_a_schema_that_never_ends_is_left_as_it_is() -> None:
    circle = {"properties": {"a": TEXT}, "allOf": [{"$ref": "#"}]}
    assert Draft202012Validator.check_schema(circle) is None
    closed(circle)
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, B]} for i in range(5000)}
    closed({"allOf": [{"$ref": "#/$defs/d0"}, A], "$defs": chain})
    deep: dict[str, Any] = A
    for _ in range(300):
        deep = {"allOf": [deep, B]}
    closed(deep)


@pytest.mark.parametrize(
    "group",
    [{"allOf": [{"$ref": "#/$defs/N"}, B]}, {"oneOf": [{"$ref": "#/$defs/N"}] * 50}],
    ids=["allOf", "oneOf"],
)
def test_much_that_is_said_again_and_again_costs_little(group: dict[str, Any]) -> None:
    names = {f"n{i}": True for i in range(2000)}
    huge = {
        "prefixItems": [json.loads(json.dumps(group)) for _ in range(100)],
        "$defs": {"N": {"properties": names, "required": list(names)}},
    }
    begin = time.thread_time()
    assert len(json.dumps(closed(huge))) < 2 * len(json.dumps(huge))
    assert time.thread_time() - begin < 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    schema=st.recursive(
        st.sampled_from([None, True, 5, "#", "#/$defs", "a", 1.5]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keywords, inner, max_size=4),
        max_leaves=20,
    )
)
def test_an_invalid_schema_is_left_for_the_check_to_refuse(schema: Any) -> None:
    if isinstance(schema, dict):
        closed(schema)


_part = st.sampled_from([True, {"type": "integer"}, TEXT, {"const": 1}, {"enum": ["x", 1]}])
_own = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from(NAMES), _part, max_size=2),
        "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
        "additionalProperties": st.booleans(),
        "minProperties": st.integers(0, 3),
        "type": st.just("object"),
        "$ref": st.sampled_from(["#/$defs/D", "#/$defs/E"]),
    },
)
_few = {"min_size": 1, "max_size": 3}
_schema = st.recursive(
    _own,
    lambda inner: st.builds(
        lambda own, same: {**own, **same},
        _own,
        st.fixed_dictionaries(
            {},
            optional={
                **{key: st.lists(inner, **_few) for key in ("allOf", "anyOf", "oneOf")},
                **dict.fromkeys(("if", "then", "else", "not"), inner),
                "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
            },
        ),
    ),
    max_leaves=6,
)
OBJECTS = [
    dict(zip(names, values, strict=True))
    for size in range(len(NAMES) + 1)
    for names in itertools.combinations(NAMES, size)
    for values in itertools.product(VALUES, repeat=size)
]


@settings(max_examples=EXAMPLES, deadline=None)
@given(schema=_schema, first=_own, second=_own)
def test_what_is_written_matches_and_there_is_something_to_write(
    schema: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    """For schemas put together in every way that JSON Schema knows."""
    first.pop("$ref", None)
    if second.get("$ref") != "#/$defs/D":
        second.pop("$ref", None)
    schema = {**schema, "$defs": {"D": first, "E": second}}
    asked = Draft202012Validator(schema)
    written = Draft202012Validator(closed(schema))
    matching = [value for value in OBJECTS if asked.is_valid(value)]
    left = [value for value in matching if written.is_valid(value)]
    assert [value for value in OBJECTS if written.is_valid(value)] == left
    assert bool(matching) == bool(left)
