"""Converts bare text values to JSON of the type given in the tool's schema."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

from service.output.calls.json_text import INVALID, dumps, is_unicode, loads

_MAX_REFERENCES = 8
_MAX_LITERAL_CHARS = 1 << 20
# Type names that people and other servers use in place of JSON Schema's.
_TYPE_NAMES = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "long", "short", "unsigned"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double", "num", "decimal"), "number"),
    **dict.fromkeys(("bool", "binary"), "boolean"),
    **dict.fromkeys(("dict", "map", "struct"), "object"),
    **dict.fromkeys(("list", "arr", "tuple", "set"), "array"),
    **dict.fromkeys(("none", "nonetype"), "null"),
}
_TRUE, _FALSE, _NULL = ("true", "True"), ("false", "False"), ("null", "None")


def parameter_types(schema: dict[str, Any] | None, key: str) -> frozenset[str]:
    """Return the JSON types that a tool's schema allows for an argument; empty if unspecified."""
    if not isinstance(schema, dict):
        return frozenset()
    properties = schema.get("properties")
    part = properties.get(key) if isinstance(properties, dict) else None
    return frozenset(_types(part, schema, _MAX_REFERENCES))


def schema_types(part: Any, root: Any) -> frozenset[str]:
    """Return the JSON types allowed by ``part`` of the schema ``root``; empty if unspecified."""
    return frozenset(_types(part, root, _MAX_REFERENCES)) if isinstance(root, dict) else frozenset()


def in_schema(part: Any, key: str | int, root: Any) -> Any:
    """Return the schema of property or array item ``key`` within ``part`` of the schema ``root``;
    None if unspecified."""
    return _inner(part, key, root, _MAX_REFERENCES) if isinstance(root, dict) else None


def _inner(part: Any, key: str | int, root: dict[str, Any], references: int) -> Any:
    if not isinstance(part, dict) or references < 0:
        return None
    if isinstance(reference := part.get("$ref"), str):
        return _inner(resolve(reference, root), key, root, references - 1)
    if isinstance(key, int):
        first = part.get("prefixItems")
        if isinstance(first, list) and key < len(first):
            return first[key]
        found = part.get("items")
    else:
        properties = part.get("properties")
        found = properties.get(key) if isinstance(properties, dict) else None
        if found is None:
            found = part.get("additionalProperties")
    if isinstance(found, dict):
        return found
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = part.get(keyword)
        for option in parts if isinstance(parts, list) else ():
            found = _inner(option, key, root, references - 1)
            if found is not None:
                return found
    return None


def _types(part: Any, root: dict[str, Any], references: int) -> set[str]:
    if not isinstance(part, dict) or references < 0:
        return set()
    declared = part.get("type")
    if isinstance(declared, str):
        return _named(declared)
    if isinstance(declared, list):
        names = [_named(kind) for kind in declared if isinstance(kind, str)]
        return set().union(*names) if all(names) else set()
    if isinstance(reference := part.get("$ref"), str):
        return _types(resolve(reference, root), root, references - 1)
    if "const" in part:
        return {_type_of(part["const"])}
    if isinstance(options := part.get("enum"), list):
        return {_type_of(option) for option in options}
    found: set[str] = set()
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = part.get(keyword)
        for inner in parts if isinstance(parts, list) else ():
            types = _types(inner, root, references - 1)
            if not types and keyword != "allOf":
                return set()  # any type is allowed
            found |= types
    if not found and ("properties" in part or "additionalProperties" in part):
        return {"object"}
    return {"array"} if not found and "items" in part else found


def _named(kind: str) -> set[str]:
    kind = kind.strip().lower()
    return set() if kind == "any" else {_TYPE_NAMES.get(kind, kind)}


def resolve(reference: str, root: dict[str, Any]) -> Any:
    """Return the part of the schema ``root`` to which a reference points."""
    if not reference.startswith("#/"):
        return None
    part: Any = root
    for step in reference[2:].split("/"):
        part = part.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(part, dict) else 0
    return part


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "array"
        case _:
            return "object"


def to_json(text: str, types: frozenset[str], *, untyped_json: bool) -> str:
    """Convert ``text`` to JSON of one of ``types``, or to a JSON string if it matches none of them.
    If ``types`` is empty and ``untyped_json`` is set, text that is already valid JSON is kept as it
    is."""
    if not types and not untyped_json:
        return dumps(text)
    text_alone = text.strip()
    value = _value_of(text_alone)
    if value is INVALID or (types and not _is_of(value, types)):
        return dumps(text)
    return _spelled(text_alone, _integral(value) if "integer" in types else value)


def python_to_json(text: str) -> str:
    """Convert a Python literal to JSON; any other text becomes a JSON string."""
    value = _value_of(text)
    return dumps(text) if value is INVALID else _spelled(text, value)


def _spelled(text: str, value: Any) -> str:
    """Return the model's own text if it is valid JSON, so that numbers keep all their digits."""
    written = _strict(text)
    return text if type(written) is type(value) and written == value else dumps(value)


def _strict(text: str) -> Any:
    return loads(text, strict=True) if is_unicode(text) else INVALID


def _value_of(text: str) -> Any:
    """Evaluate a JSON or Python literal; INVALID if ``text`` is neither."""
    for spellings, value in ((_TRUE, True), (_FALSE, False), (_NULL, None)):
        if text in spellings:
            return value
    value = _strict(text)
    if value is INVALID and len(text) <= _MAX_LITERAL_CHARS:
        value = _python_value(text)
    return value


def _python_value(text: str) -> Any:
    """Accept both JSON and Python spellings of true, false and null, as models mix them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # it is the model's Python, not ours
            tree = ast.parse(text.strip(), mode="eval")
        value = ast.literal_eval(_JsonNames().visit(tree))
        written = json.dumps(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return INVALID
    return INVALID if loads(written) is INVALID else value


class _JsonNames(ast.NodeTransformer):
    _VALUES = {"true": True, "false": False, "null": None}  # noqa: RUF012  # never changed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._VALUES[node.id]) if node.id in self._VALUES else node


def _is_of(value: Any, types: frozenset[str]) -> bool:
    kind = _type_of(value)
    if kind == "number" and "integer" in types:
        return "number" in types or isinstance(value, int) or value.is_integer()
    return kind in types


def _integral(value: Any) -> Any:
    """Turn 5.0 into 5 where the schema requires an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
