"""JSON schemas as grammars: what of the dialect is enforced, and what is refused by name.

Draft 2020-12 as llguidance reads it (older drafts' ``definitions``, ``items`` as a list and boolean
``exclusiveMinimum`` too). The output is one JSON value; properties come in the order of the
schema's ``properties``, then those that only ``required`` names, then others.

- A keyword that restricts the value and cannot be enforced is refused, with its path.
- Keywords that restrict nothing (``title``, ``default``, ``contentEncoding``, unknown ones) are
  annotations, as the standard has it.
- Strings spell control characters by their short escapes and everything else as it is; ``\\uXXXX``
  is not written: it would let a property's name be spelled past the schema.
- White space between the JSON's tokens is one space, or a line break and an indent of at most 40;
  unbounded white space would let a model go on forever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from service.errors import InvalidRequestError

MAX_SCHEMA_BYTES = 256 * 1024
_MAX_SCHEMAS = 10_000
_MAX_DEPTH = 40  # llguidance reads JSON to a depth of 128, and a schema takes up to three

_WHITESPACE = r"\x20|\r?\n[\x20\t]{0,40}"
_ESCAPES = 'nrbtf\\"'

_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
        "uri",
    }
)


def _always(_: Any) -> bool:
    return True


def _unless_false(value: Any) -> bool:
    return value is not False


def _unless_true(value: Any) -> bool:
    return value is not True


# Keywords that restrict values and that no grammar here enforces; whether a value of theirs does.
_UNENFORCED: dict[str, Callable[[Any], bool]] = {
    "uniqueItems": _unless_false,
    "contains": _unless_true,
    "minContains": _always,
    "maxContains": _always,
    "not": _unless_false,
    "if": _always,
    "then": _always,
    "else": _always,
    "dependentRequired": bool,
    "dependentSchemas": bool,
    "dependencies": bool,
    "propertyNames": _unless_true,
    "unevaluatedProperties": _unless_true,
    "unevaluatedItems": _unless_true,
    "$dynamicRef": _always,
    "$recursiveRef": _always,
}
_SCHEMA_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_SCHEMAS = frozenset({"items", "additionalProperties", "additionalItems"})


def check_schema(schema: dict[str, Any] | bool, param: str, *, every_keyword: bool = True) -> None:
    """Raises InvalidRequestError for a schema that is too large or, with ``every_keyword``, has a
    keyword that cannot be enforced; the error names it."""
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(
            f"The schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB.", param=param
        )
    for count, (path, part) in enumerate(_walk(schema, param, 0)):
        if count >= _MAX_SCHEMAS:
            raise InvalidRequestError(
                f"The schema has more than {_MAX_SCHEMAS} subschemas.", param=param
            )
        if isinstance(part, dict):
            if every_keyword:
                _check_keywords(part, path)
        elif not isinstance(part, bool):
            raise InvalidRequestError(f"'{path}' is not a schema.", param=param)


def _walk(schema: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """A schema and all its subschemas, with their paths."""
    if depth > _MAX_DEPTH:
        raise InvalidRequestError(
            f"The schema is nested more than {_MAX_DEPTH} levels deep.", param=path[:200]
        )
    yield path, schema
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        here = f"{path}.{keyword}"
        if keyword in _SCHEMA_MAPS and isinstance(value, dict):
            for name, part in value.items():
                yield from _walk(part, f"{here}.{name}", depth + 1)
        elif isinstance(value, list) and (keyword in _SCHEMA_LISTS or keyword == "items"):
            for index, part in enumerate(value):
                yield from _walk(part, f"{here}.{index}", depth + 1)
        elif keyword in _SCHEMAS:
            yield from _walk(value, here, depth + 1)


def _check_keywords(schema: dict[str, Any], path: str) -> None:
    for keyword, restricts in _UNENFORCED.items():
        if keyword in schema and restricts(schema[keyword]):
            raise InvalidRequestError(
                f"The schema keyword '{keyword}' cannot be enforced.", param=f"{path}.{keyword}"
            )
    declared = schema.get("format")
    if isinstance(declared, str) and declared not in _FORMATS and _is_about_strings(schema):
        raise InvalidRequestError(
            f"The string format '{declared[:64]}' cannot be enforced; "
            f"{', '.join(sorted(_FORMATS))} can.",
            param=f"{path}.format",
        )
    least, required = schema.get("minProperties"), schema.get("required")
    named = len(required) if isinstance(required, list) else 0
    # Properties that no one named may come twice, and count once when they are read.
    if isinstance(least, int | float) and least > max(1, named):
        raise InvalidRequestError(
            "The schema keyword 'minProperties' cannot be enforced beyond the properties that are "
            "'required'.",
            param=f"{path}.minProperties",
        )


def _is_about_strings(schema: dict[str, Any]) -> bool:
    kind = schema.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def schema_grammar(
    schema: dict[str, Any] | bool, *, any_whitespace: bool = True, lenient: bool = False
) -> str:
    """The schema as a term of a Lark grammar. ``lenient`` leaves out what cannot be enforced."""
    body: dict[str, Any] = {"allOf": [schema]}
    if isinstance(schema, dict):
        body = _rewritten(schema, _without_idle)
    options: dict[str, Any] = {"json_allowed_escapes": _ESCAPES}
    if any_whitespace:
        options["whitespace_pattern"] = _WHITESPACE
    else:
        options |= {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    if lenient:
        options["lenient"] = True
    body["x-guidance"] = options  # whatever a client wrote there is no schema keyword
    return "%json " + msgspec.json.encode(body).decode()


def nested(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """The schema as it must read at ``place`` (a JSON pointer) inside another one: references to
    its own root are made to point there. One with a base of its own (``$id``) needs no change."""
    return schema if _has_base(schema) else _rewritten(schema, _Moved(place))


Change = Callable[[dict[str, Any]], dict[str, Any]]


def _rewritten(schema: dict[str, Any], change: Change) -> dict[str, Any]:
    """A copy in which every subschema, this one first, is changed."""

    def rewrite(part: Any) -> Any:
        return _rewritten(part, change) if isinstance(part, dict) else part

    changed = change(schema)
    for keyword, value in changed.items():
        if keyword in _SCHEMA_MAPS and isinstance(value, dict):
            changed[keyword] = {name: rewrite(part) for name, part in value.items()}
        elif isinstance(value, list) and (keyword in _SCHEMA_LISTS or keyword == "items"):
            changed[keyword] = [rewrite(part) for part in value]
        elif keyword in _SCHEMAS:
            changed[keyword] = rewrite(value)
    return changed


def _without_idle(schema: dict[str, Any]) -> dict[str, Any]:
    """Without keywords that are unknown to grammars and, as they stand, restrict nothing."""
    return {
        keyword: value
        for keyword, value in schema.items()
        if keyword not in _UNENFORCED or _UNENFORCED[keyword](value)
    }


def _has_base(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)


class _Moved:
    """Makes references to a schema's root point to ``place``."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, schema: dict[str, Any]) -> dict[str, Any]:
        target = schema.get("$ref")
        if isinstance(target, str) and (target == "#" or target.startswith("#/")):
            return {**schema, "$ref": f"#{self._place}{target[1:]}"}
        return dict(schema)
