"""The schemas in a JSON schema, and where its references lead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

# Keywords of which grammars read the schemas.
SCHEMA_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
SCHEMAS = frozenset({"items", "additionalProperties", "additionalItems"})

_IN_FRAGMENTS = "!$&'()*+,;=:@/?~"  # and letters, digits and what quote() always keeps
_NOT_IN_FRAGMENTS = re.compile(r"[^\w.!$&'()*+,;=:@/?~%-]|[^\x00-\x7F]|%(?![0-9a-fA-F]{2})")
_INDEX = re.compile("[0-9]{1,9}")
_MAX_DEPTH = 256


def steps_of(reference: str) -> list[str] | None:
    """Return the keys on the way to a reference's target; None if it is not a pointer into the same
    schema. Pointers may be percent-encoded."""
    if reference == "#":
        return []
    if not reference.startswith("#/"):
        return None
    steps = unquote(reference[2:]).split("/")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def target_of(reference: str, root: Any) -> Any:
    """Return the part of the schema ``root`` to which a reference points; None if there is none."""
    steps = steps_of(reference)
    if steps is None:
        return None
    found = root
    for step in steps:
        if isinstance(found, list) and _INDEX.fullmatch(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def outside_reference(schema: Any) -> str | None:
    """Return the path (``properties.p.$ref``) of the first reference to another document; None if
    there is none. What only looks like one, in a ``default``, say, leads nowhere."""
    waiting: list[tuple[Any, _Way | None]] = [(schema, None)]
    while waiting:
        part, way = waiting.pop()
        if not isinstance(part, dict):
            continue
        reference = part.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            return ".".join([*map(str, _keys(way)), "$ref"])
        waiting += reversed([*_schemas_in(part, way)])
    return None


def _schemas_in(schema: dict[str, Any], way: _Way | None) -> Iterator[tuple[Any, _Way]]:
    """Yield the schemas that are next below this one, and the ways to them."""
    for keyword, value in schema.items():
        here = _Way(keyword, way)
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            yield from ((part, _Way(name, here)) for name, part in value.items())
        elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
            yield from ((part, _Way(index, here)) for index, part in enumerate(value))
        elif keyword in SCHEMAS:
            yield value, here


def list_in(schema: dict[str, Any], keyword: str) -> list[Any]:
    """Return the list that the schema has for a keyword; an empty one if it has none."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def with_pointers(schema: Any) -> Any:
    """Return the schema with references to its anchors written as pointers, and pointers without
    characters that a URI cannot hold."""
    if not any(map(_needs_change, _references(schema))):
        return schema
    anchors: dict[str, str] = {}
    for part, way in _dicts(schema):
        name = part.get("$anchor", part.get("$id"))
        if not isinstance(name, str):
            continue
        if "$anchor" in part:
            anchors[f"#{name}"] = _pointer(way)
        elif name.startswith("#"):  # as in drafts before 2019-09
            anchors[name] = _pointer(way)
        elif way is not None:
            return schema  # references inside have another base
    return _written(schema, anchors, 0)


def _needs_change(reference: Any) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#") or reference == "#":
        return False
    return reference[1] != "/" or _NOT_IN_FRAGMENTS.search(reference, 1) is not None


def _references(schema: Any) -> Iterator[Any]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part.get("$ref")
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


class _Way(NamedTuple):
    """The keys to a part, the last one first: pointers to all parts could fill the memory."""

    key: str | int
    before: _Way | None


def _dicts(schema: Any) -> Iterator[tuple[dict[str, Any], _Way | None]]:
    """Yield every object in the schema, and the way to it."""
    waiting: list[tuple[Any, _Way | None]] = [(schema, None)]
    while waiting:
        part, way = waiting.pop()
        if isinstance(part, dict):
            yield part, way
        inner = part.items() if isinstance(part, dict) else enumerate(part)
        waiting += [(one, _Way(key, way)) for key, one in inner if isinstance(one, dict | list)]


def _pointer(way: _Way | None) -> str:
    return "/".join(["#", *(_step(str(key)) for key in _keys(way))])


def _keys(way: _Way | None) -> list[str | int]:
    keys: list[str | int] = []
    while way is not None and len(keys) <= _MAX_DEPTH:
        keys.append(way.key)
        way = way.before
    return keys[::-1]


def _step(key: str) -> str:
    return quote(key.replace("~", "~0").replace("/", "~1"), safe=_IN_FRAGMENTS)


def _written(part: Any, anchors: dict[str, str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return part
    if isinstance(part, list):
        return [_written(inner, anchors, depth + 1) for inner in part]
    if not isinstance(part, dict):
        return part
    changed = {key: _written(value, anchors, depth + 1) for key, value in part.items()}
    reference = part.get("$ref")
    if isinstance(reference, str) and _needs_change(reference):
        if reference in anchors:
            changed["$ref"] = anchors[reference]
        elif (steps := steps_of(reference)) is not None:
            changed["$ref"] = "/".join(["#", *map(_step, steps)])
    return changed
