"""The arguments of a call that names them one by one, from a schema that may spread them over
``$ref`` and ``allOf``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from service.conversation import JsonObject
from service.schema_targets import list_in, target_of

_MOST_REFERENCES = 8
_MOST_WORK = 100_000
_UNKNOWN = 2**62  # how many arguments there are without names
_SHAPING = frozenset({"properties", "additionalProperties"})
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
    parts, too_deep = _parts(schema)
    names = [name for part in parts for name in _properties(part)]
    required = [name for part in parts for name in list_in(part, "required") if type(name) is str]
    properties: JsonObject = {}
    left_out = [keyword for part in parts for keyword in _BEYOND if part.get(keyword)]
    left_out += too_deep
    distinct = dict.fromkeys([*names, *required])
    shaping = [part for part in parts if part.keys() & _SHAPING]
    if len(shaping) * len(distinct) > _MOST_WORK:
        left_out.append("allOf")
        shaping = shaping[:1]
    for name in distinct:
        shape = _joined([_shape_of(part, name) for part in shaping])
        if not isinstance(shape, dict | bool):
            left_out.append("properties")
        elif shape is not False:
            properties[name] = shape
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


def _parts(root: JsonObject) -> tuple[list[JsonObject], list[str]]:
    """Return the schemas that describe the arguments together, each once, and the keywords that led
    further than is followed."""
    found: list[JsonObject] = []
    too_deep: list[str] = []
    seen: set[int] = set()
    waiting: list[tuple[Any, int, str]] = [(root, _MOST_REFERENCES, "")]
    while waiting:
        one, references, keyword = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        if references < 0:
            too_deep.append(keyword)
            continue
        seen.add(id(one))
        found.append(one)
        waiting += [(other, references - 1, "allOf") for other in reversed(list_in(one, "allOf"))]
        waiting.append((_target(one, root), references - 1, "$ref"))
    return found, too_deep


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
    fewest, greatest = part.get("minProperties", 0), part.get("maxProperties", most)
    if not isinstance(fewest, int | float) or fewest > least:
        yield "minProperties"
    if not isinstance(greatest, int | float) or greatest < most:
        yield "maxProperties"


def _properties(part: JsonObject) -> JsonObject:
    found = part.get("properties")
    return found if isinstance(found, dict) else {}
