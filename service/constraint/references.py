"""References inside a JSON schema: where they lead, and which keywords next to them matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from service.constraint.schema import UNENFORCED
from service.schema_targets import steps_of, target_of

# Keywords that restrict values; all others are annotations, or contain definitions.
RESTRICTING = frozenset(
    {
        *("type", "enum", "const", "anyOf", "allOf", "oneOf"),
        *("properties", "patternProperties", "additionalProperties", "required"),
        *("minProperties", "maxProperties"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
        *("pattern", "format", "minLength", "maxLength"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *UNENFORCED,
    }
)
# Keywords that change what a schema means, or what references mean.
MEANINGFUL = RESTRICTING | {
    *("$ref", "$defs", "definitions", "$id", "id", "$anchor", "$dynamicAnchor", "$schema"),
}
_MOST_WORK = 100_000  # parts visited for one schema


def steps_of_references(schema: Any) -> frozenset[str]:
    """Return the names that occur on the way to any reference's target: keywords that contain
    definitions, whatever they are called."""
    return frozenset(
        step
        for part in _parts(schema)
        if isinstance(part, dict) and isinstance(target := part.get("$ref"), str)
        for step in steps_of(target) or ()
    )


def circular_references(schema: dict[str, Any]) -> frozenset[int]:
    """Return the ids of the subschemas with restricting keywords next to a reference that leads
    back to them: no grammar can be made of these. The search ends at a limited cost."""
    mixed = [
        part
        for part in _parts(schema)
        if isinstance(part, dict)
        and isinstance(part.get("$ref"), str)
        and part.keys() & RESTRICTING
    ]
    found: set[int] = set()
    left = _MOST_WORK
    for part in mixed:
        seen: set[int] = set()
        waiting = [target_of(part["$ref"], schema)]
        while waiting and left:
            left -= 1
            one = waiting.pop()
            if not isinstance(one, dict | list) or id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, dict) and isinstance(one.get("$ref"), str):
                waiting.append(target_of(one["$ref"], schema))
            waiting += _used(one)
        if id(part) in seen:
            found.add(id(part))
    return frozenset(found)


def _used(part: dict[str, Any] | list[Any]) -> Iterator[Any]:
    """Yield what a schema consists of, without what it only defines."""
    if isinstance(part, list):
        yield from part
        return
    for keyword, value in part.items():
        if keyword not in ("$defs", "definitions"):
            yield value


def _parts(schema: Any) -> Iterator[Any]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
