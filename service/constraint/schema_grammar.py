"""Writes JSON schemas as grammar terms, rewriting them where a grammar requires it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from service.constraint.schema import (
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMAS,
    UNENFORCED,
    Enforceable,
)

_WHITESPACE = r"\x20|\r?\n[\x20\t]{0,40}"
_ESCAPES = 'nrbtf\\"'


def eased(schema: dict[str, Any] | bool, param: str) -> Iterator[Enforceable]:
    """Yield ever simpler versions of a schema whose grammar may be impossible or too large: first
    with ``oneOf`` turned into ``anyOf``, then without patterns too."""
    if not isinstance(schema, dict):
        return
    for keywords in (("oneOf",), ("oneOf", "pattern", "patternProperties")):
        paths: list[str] = []
        changed = _without(schema, keywords, param, paths)
        if paths:
            yield Enforceable(changed, [], paths)


def _without(schema: Any, keywords: tuple[str, ...], path: str, paths: list[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    for keyword in keywords:
        if keyword not in kept:
            continue
        value = kept.pop(keyword)
        paths.append(f"{path}.{keyword}")
        if keyword == "oneOf":
            if "anyOf" in kept:
                kept["allOf"] = [*kept.get("allOf", []), {"anyOf": value}]
            else:
                kept["anyOf"] = value
    for keyword, value in kept.items():
        here = f"{path}.{keyword}"
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            kept[keyword] = {
                name: _without(part, keywords, f"{here}.{name}", paths)
                for name, part in value.items()
            }
        elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
            kept[keyword] = [
                _without(part, keywords, f"{here}.{index}", paths)
                for index, part in enumerate(value)
            ]
        elif keyword in SCHEMAS:
            kept[keyword] = _without(value, keywords, here, paths)
    return kept


def schema_grammar(
    schema: dict[str, Any] | bool, *, any_whitespace: bool = True, lenient: bool = False
) -> str:
    """Return the schema as a term of a Lark grammar. ``lenient`` drops what cannot be enforced."""
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
    body["x-guidance"] = options  # replaces what the client wrote: it is not a schema keyword
    return "%json " + msgspec.json.encode(body).decode()


def nested(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the schema adapted to ``place`` (a JSON pointer) inside another one: references to its
    own root point there. A schema with its own base (``$id``) needs no change."""
    return schema if _has_base(schema) else _rewritten(schema, _Moved(place))


Change = Callable[[dict[str, Any]], dict[str, Any]]


def _rewritten(schema: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return a copy with ``change`` applied to every subschema, this one first."""

    def rewrite(part: Any) -> Any:
        return _rewritten(part, change) if isinstance(part, dict) else part

    changed = change(schema)
    for keyword, value in changed.items():
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            changed[keyword] = {name: rewrite(part) for name, part in value.items()}
        elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
            changed[keyword] = [rewrite(part) for part in value]
        elif keyword in SCHEMAS:
            changed[keyword] = rewrite(value)
    return changed


def _without_idle(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop keywords that grammars do not know and whose values restrict nothing."""
    return {
        keyword: value
        for keyword, value in schema.items()
        if keyword not in UNENFORCED or UNENFORCED[keyword](value)
    }


def _has_base(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)


class _Moved:
    """Redirects references to a schema's root to ``place``."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, schema: dict[str, Any]) -> dict[str, Any]:
        target = schema.get("$ref")
        if isinstance(target, str) and (target == "#" or target.startswith("#/")):
            return {**schema, "$ref": f"#{self._place}{target[1:]}"}
        return dict(schema)
