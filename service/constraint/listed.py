"""The arguments of a call that names them one by one, from a schema that may spread them over
``$ref`` and ``allOf``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from service.conversation import JsonObject
from service.schema_targets import target_of

_MOST_REFERENCES = 8
_UNKNOWN = 2**62  # how many arguments there are without names
# Keywords that restrict which arguments there are, and that a list of them cannot follow.
_BEYOND = ("anyOf", "oneOf", "patternProperties", "const", "enum")


class Listed(NamedTuple):
    """``properties`` in their order. ``named``: there are no others. ``left_out``: keywords that a
    list of arguments cannot follow."""

    properties: JsonObject
    required: frozenset[str]
    named: bool
    left_out: tuple[str, ...]


def listed(schema: JsonObject) -> Listed:
    """Return the arguments of an object that matches the schema."""
    parts = list(_parts(schema, schema, _MOST_REFERENCES))
    names = [name for part in parts for name in _properties(part)]
    required = [name for part in parts for name in _listed(part, "required") if type(name) is str]
    properties: JsonObject = {}
    for name in dict.fromkeys([*names, *required]):
        shape = _joined([_shape_of(part, name) for part in parts])
        if shape is not False:
            properties[name] = shape
    left_out = [keyword for part in parts for keyword in _BEYOND if part.get(keyword)]
    if not properties.keys() >= set(required):
        left_out.append("required")
    others = [part.get("additionalProperties", True) for part in parts]
    if not properties and any(isinstance(other, dict) and other for other in others):
        left_out.append("additionalProperties")
    counts = len(set(required)), len(properties) or _UNKNOWN
    left_out += [keyword for part in parts for keyword in _uncounted(part, *counts)]
    left_out += ["$ref" for part in parts if "$ref" in part and _target(part, schema) is None]
    named = bool(properties) or any("properties" in part for part in parts) or False in others
    return Listed(properties, frozenset(required), named, tuple(dict.fromkeys(left_out)))


def _parts(part: Any, root: JsonObject, references: int) -> Iterator[JsonObject]:
    """Yield the schemas that describe the arguments together, each once."""
    seen: set[int] = set()
    waiting = [(part, references)]
    while waiting:
        one, references = waiting.pop()
        if not isinstance(one, dict) or references < 0 or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [_target(one, root), *_listed(one, "allOf")]
        waiting += [(other, references - 1) for other in reversed(inner)]


def _target(part: JsonObject, root: JsonObject) -> Any:
    reference = part.get("$ref")
    return target_of(reference, root) if isinstance(reference, str) else None


def _shape_of(part: JsonObject, name: str) -> Any:
    return _properties(part).get(name, part.get("additionalProperties", True))


def _joined(shapes: list[Any]) -> Any:
    """Return a schema for what matches all of these."""
    if False in shapes:
        return False
    shapes = [shape for shape in shapes if shape is not True and shape != {}]
    return {"allOf": shapes} if len(shapes) > 1 else (shapes or [True])[0]


def _uncounted(part: JsonObject, least: int, most: int) -> Iterator[str]:
    """Yield limits on the number of arguments that a list may break; it has ``least`` to ``most``
    of them."""
    if part.get("minProperties", 0) > least:
        yield "minProperties"
    if part.get("maxProperties", most) < most:
        yield "maxProperties"


def _properties(part: JsonObject) -> JsonObject:
    found = part.get("properties")
    return found if isinstance(found, dict) else {}


def _listed(part: JsonObject, keyword: str) -> list[Any]:
    value = part.get(keyword)
    return value if isinstance(value, list) else []
