"""Writes JSON schemas as grammar terms, rewriting them where a grammar requires it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from itertools import accumulate
from typing import Any

import msgspec

from service.constraint.exact_formats import EXACT_FORMATS
from service.constraint.references import (
    MEANINGFUL,
    RESTRICTING,
    circular_references,
    steps_of_references,
)
from service.constraint.schema import UNENFORCED, Enforceable
from service.constraint.writable import writable
from service.schema_targets import SCHEMA_LISTS, SCHEMA_MAPS, SCHEMAS

_WHITESPACE = r"\x20|\r?\n[\x20\t]{0,40}"
_ESCAPES = 'nrbtf\\"'


def eased(schema: dict[str, Any] | bool, param: str) -> Iterator[Enforceable]:
    """Yield ever simpler versions of a schema whose grammar may be impossible or too large: first
    with recursive references alone, without keywords next to them, then with ``oneOf`` turned into
    ``anyOf``, then without limits on the number of properties, then without patterns too."""
    if not isinstance(schema, dict):
        return
    before: list[str] = []
    circular = circular_references(schema)
    for keywords in accumulate(_STEPS):
        step = _Step(keywords, circular)
        changed = step.read(schema, param)
        if step.paths != before:
            yield Enforceable(changed, [], step.paths)
        before = step.paths


_STEPS: tuple[tuple[str, ...], ...] = (
    (),
    ("oneOf",),
    ("minProperties", "maxProperties"),
    ("pattern", "patternProperties"),
)


class _Step:
    """Writes a schema without these keywords; ``circular``: the ids of subschemas from which the
    keywords next to a reference are removed. ``paths``: what was left out."""

    def __init__(self, keywords: tuple[str, ...], circular: Set[int]) -> None:
        self._keywords = keywords
        self._circular = circular
        self.paths: list[str] = []

    def read(self, schema: Any, path: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        kept = self._own(schema, path)
        for keyword, value in kept.items():
            here = f"{path}.{keyword}"
            if keyword in SCHEMA_MAPS and isinstance(value, dict):
                kept[keyword] = {
                    name: self.read(part, f"{here}.{name}") for name, part in value.items()
                }
            elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
                kept[keyword] = [
                    self.read(part, f"{here}.{index}") for index, part in enumerate(value)
                ]
            elif keyword in SCHEMAS:
                kept[keyword] = self.read(value, here)
        return kept

    def _own(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        kept = dict(schema)
        if id(schema) in self._circular:
            for keyword in [name for name in kept if name in RESTRICTING]:
                del kept[keyword]
                self.paths.append(f"{path}.{keyword}")
        for keyword in self._keywords:
            if keyword not in kept:
                continue
            value = kept.pop(keyword)
            self.paths.append(f"{path}.{keyword}")
            if keyword == "oneOf":
                if "anyOf" in kept:
                    kept["allOf"] = [*kept.get("allOf", []), {"anyOf": value}]
                else:
                    kept["anyOf"] = value
        return kept


def schema_grammar(
    schema: dict[str, Any] | bool, *, any_whitespace: bool = True, lenient: bool = False
) -> str:
    """Return the schema as a term of a Lark grammar; parts of it may be ``msgspec.Raw``, from
    ``as_generated``. ``lenient`` drops what cannot be enforced."""
    body: dict[str, Any] = {"allOf": [schema]}
    if isinstance(schema, dict):
        body = as_generated(schema)
    options: dict[str, Any] = {"json_allowed_escapes": _ESCAPES}
    if any_whitespace:
        options["whitespace_pattern"] = _WHITESPACE
    else:
        options |= {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    if lenient:
        options["lenient"] = True
    body["x-guidance"] = options  # replaces what the client wrote: it is not a schema keyword
    return "%json " + msgspec.json.encode(body).decode()


def as_generated(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as a grammar must have it to mean the same."""
    return rewritten(rewritten(schema, _WithoutIdle(schema)), _with_exact_strings)


def nested(schema: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the schema adapted to ``place`` (a JSON pointer) inside another one: references to its
    own root point there. A schema with its own base (``$id``) needs no change."""
    return schema if _has_base(schema) else rewritten(schema, _Moved(place))


Change = Callable[[dict[str, Any]], dict[str, Any]]


def rewritten(schema: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return a copy with ``change`` applied to every subschema, this one first."""

    def rewrite(part: Any) -> Any:
        return rewritten(part, change) if isinstance(part, dict) else part

    changed = change(schema)
    for keyword, value in changed.items():
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            changed[keyword] = {name: rewrite(part) for name, part in value.items()}
        elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
            changed[keyword] = [rewrite(part) for part in value]
        elif keyword in SCHEMAS:
            changed[keyword] = rewrite(value)
    return changed


class _WithoutIdle:
    """Drops keywords that grammars do not know and whose values restrict nothing, and annotations
    next to a reference, which would make it more than a reference."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._steps = steps_of_references(root)

    def __call__(self, schema: dict[str, Any]) -> dict[str, Any]:
        refers = isinstance(schema.get("$ref"), str)
        return {
            keyword: value
            for keyword, value in schema.items()
            if (keyword not in UNENFORCED or UNENFORCED[keyword](value))
            and not (refers and self._is_annotation(keyword))
        }

    def _is_annotation(self, keyword: str) -> bool:
        return keyword not in MEANINGFUL and keyword not in self._steps


def _with_exact_strings(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy whose patterns and formats the library reads as they are meant."""
    changed = dict(schema)
    if isinstance(regex := schema.get("pattern"), str):
        changed["pattern"] = writable(regex)
    if isinstance(names := schema.get("patternProperties"), dict):
        changed["patternProperties"] = {writable(regex): part for regex, part in names.items()}
    exact = EXACT_FORMATS.get(str(schema.get("format")))
    if exact is None:
        return changed
    if "pattern" not in schema:
        changed["pattern"] = exact
    elif isinstance(others := schema.get("allOf", []), list):
        changed["allOf"] = [*others, {"pattern": exact}]
    return changed


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
