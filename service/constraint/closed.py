"""Restricts objects to the properties that their schema names.

If a schema has ``properties`` and does not mention others, any others are allowed, and a small
model invents them until its answer is cut off. So none are generated, as in OpenAI's strict mode,
xgrammar and llama.cpp; the output still matches the original schema.

An object stays open if the schema itself covers other properties, by ``additionalProperties``,
``patternProperties``, ``unevaluatedProperties`` or ``propertyNames``, or if it names no properties
at all. If several subschemas describe one object (``allOf``, ``properties`` next to ``anyOf`` or
``$ref``), the properties of all of them count as named; if these cannot be determined, the object
stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from service.schema_targets import target_of

# A schema with one of these already covers other properties, or lists whole values.
_SAYS_ITSELF = frozenset(
    {
        *("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"),
        *("enum", "const", "$dynamicRef", "$recursiveRef"),
    }
)
# Keywords that describe the object directly, rather than through subschemas.
_OWN = _SAYS_ITSELF | {
    *("properties", "required", "minProperties", "dependentRequired", "dependencies"),
}
# Keywords whose subschemas apply to the same value.
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_PARTS = ("if", "then", "else")
_SAME_MAPS = ("dependentSchemas", "dependencies")
# Keywords whose subschemas apply to values inside it, or are only definitions.
_INNER_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_INNER_PARTS = frozenset(
    {"items", "additionalProperties", "additionalItems", "contains", "prefixItems"}
)
_MAX_DEPTH = 64  # deeper schemas are rejected elsewhere
_MOST_NAMES = 200  # added to one object
_MOST_WORK = 50_000  # subschemas and names visited for one schema


def closed(schema: dict[str, Any] | bool) -> dict[str, Any] | bool:
    """Return a schema that matches a subset of the original's values: objects have only named
    properties."""
    if isinstance(schema, bool):
        return schema
    closer = _Closer(schema)
    try:
        closer.note_shared(schema, alone=True)
        rewritten: dict[str, Any] = closer.rewritten(schema, alone=True)
    except _UnclearError:
        return schema
    return rewritten


class _UnclearError(Exception):
    """The targets of the schema's references cannot be determined, or only at too great a cost."""


class _Closer:
    """``alone``: no other subschema describes the same object."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._shared: set[int] = set()  # describe an object jointly with others, by id
        self._apart: dict[int, bool] = {}  # options that exclude each other, by id of their list
        self._work = 0

    # --- which subschemas describe an object together with others --------------------------------

    def note_shared(self, schema: Any, *, alone: bool, depth: int = 0) -> None:
        """Find subschemas that describe an object jointly with others. Raises _UnclearError."""
        self._spend()
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return
        if depth and ("$id" in schema or isinstance(schema.get("id"), str)):
            raise _UnclearError  # it changes the meaning of references inside
        apart = alone and self._describes_nothing_itself(schema)
        if "$ref" in schema:
            target = self._target(schema)
            if target is None:
                raise _UnclearError
            if not apart:
                self._share(target)
        for inner in _inner(schema):
            self.note_shared(inner, alone=True, depth=depth + 1)
        for part in (*_same(schema), schema.get("not")):
            self.note_shared(part, alone=apart, depth=depth + 1)

    def _share(self, part: Any) -> None:
        """Mark this subschema and all others that describe the same object."""
        left = [part]
        while left:
            part = left.pop()
            self._spend()
            if isinstance(part, dict) and id(part) not in self._shared:
                self._shared.add(id(part))
                left += [*_same(part), self._target(part)]

    def _describes_nothing_itself(self, schema: dict[str, Any]) -> bool:
        """True if the schema describes the object only through subschemas, of which exactly one
        applies."""
        if any(key in _OWN and not _is_idle(key, schema[key]) for key in schema):
            return False
        held = [
            key for key in ("$ref", "not", *_SAME_LISTS, *_SAME_PARTS, *_SAME_MAPS) if key in schema
        ]
        match held:
            case [] | ["$ref"] | ["anyOf"]:
                return True
            case ["allOf"]:
                return len(_list(schema, "allOf")) == 1
            case ["oneOf"]:
                return self._exclude_each_other(_list(schema, "oneOf"))
            case _:
                return False

    def _exclude_each_other(self, options: list[Any]) -> bool:
        """True if no object can match two of these options, closed or not. Only then is an object
        that matches a closed option certain not to match another option as originally given."""
        known = self._apart.get(id(options))
        if known is None:
            known = self._apart[id(options)] = self._have_a_discriminator(options)
        return known

    def _have_a_discriminator(self, options: list[Any]) -> bool:
        objects: list[dict[str, Any]] = []
        for option in options:
            part = option
            for _ in range(_MAX_DEPTH):
                self._spend()
                if not isinstance(part, dict) or "$ref" not in part:
                    break
                part = self._target(part)
            if not isinstance(part, dict):
                return False
            kind = part.get("type", "object")
            if kind == "object" or (isinstance(kind, list) and "object" in kind):
                objects.append(part)
        if len(objects) < 2:
            return True
        needed = set.intersection(*map(self._required, objects))
        self._spend(len(needed) * len(objects))
        return any(_all_differ([_options(part, name) for part in objects]) for name in needed)

    def _required(self, part: dict[str, Any]) -> set[str]:
        names = _list(part, "required")
        self._spend(len(names))
        return {name for name in names if isinstance(name, str)}

    # --- what is written instead -----------------------------------------------------------------

    def rewritten(self, schema: Any, *, alone: bool, depth: int = 0) -> Any:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return schema
        alone = alone and id(schema) not in self._shared
        apart = alone and self._describes_nothing_itself(schema)

        def rewrite(part: Any, *, same: bool) -> Any:
            return self.rewritten(part, alone=apart if same else True, depth=depth + 1)

        changed = dict(schema)
        for key, value in schema.items():
            if key == "if" or (key == "oneOf" and not self._exclude_each_other(_list(schema, key))):
                continue  # which options a value matches must not change
            same = key in _SAME_LISTS or key in _SAME_PARTS or key in _SAME_MAPS
            if isinstance(value, dict) and (key in _INNER_MAPS or key in _SAME_MAPS):
                changed[key] = {name: rewrite(part, same=same) for name, part in value.items()}
            elif isinstance(value, list) and (key in _INNER_PARTS or key in _SAME_LISTS):
                changed[key] = [rewrite(part, same=same) for part in value]
            elif isinstance(value, dict) and (key in _INNER_PARTS or key in _SAME_PARTS):
                changed[key] = rewrite(value, same=same)
        if alone and not apart:
            self._close(changed, schema)
        return changed

    def _close(self, changed: dict[str, Any], schema: dict[str, Any]) -> None:
        names = _Names()
        try:
            sure = self._name(schema, names, 0)
        except _UnclearError:
            return
        if not sure or not names.declares or names.least > len(names.all):
            return
        own = schema.get("properties", {})
        added = [name for name in names.all if name not in own]
        if len(added) > _MOST_NAMES:
            return
        changed["properties"] = {**changed.get("properties", {}), **dict.fromkeys(added, True)}
        changed["additionalProperties"] = False

    def _name(self, part: Any, names: _Names, depth: int) -> bool:
        """Collect all properties that this subschema names. False if the object must stay open,
        because the subschema covers other properties or its names cannot be determined. Raises
        _UnclearError."""
        self._spend()
        if depth > _MAX_DEPTH:
            raise _UnclearError
        if isinstance(part, bool) or id(part) in names.seen:
            return True
        if not isinstance(part, dict):
            return False
        names.seen.add(id(part))
        if any(key in _SAYS_ITSELF and not _is_idle(key, part[key]) for key in part):
            return False
        if "$ref" in part and not self._name(self._target(part), names, depth + 1):
            return False
        properties = part.get("properties", {})
        if not isinstance(properties, dict):
            return False
        names.declares = names.declares or bool(properties)
        names.all.update(dict.fromkeys(properties))
        needed = [_list(part, "required")]
        for keyword in ("dependentRequired", "dependencies"):
            groups = part.get(keyword)
            if isinstance(groups, dict):
                needed += [[name, *group] for name, group in groups.items() if type(group) is list]
        for group in needed:
            self._spend(len(group))
            names.all.update(dict.fromkeys(name for name in group if isinstance(name, str)))
        self._spend(len(properties))
        least = part.get("minProperties", 0)
        names.least = max(names.least, least if isinstance(least, int | float) else 0)
        return all(self._name(other, names, depth + 1) for other in _same(part))

    # --- both ------------------------------------------------------------------------------------

    def _target(self, schema: dict[str, Any]) -> Any:
        """Return the target of the schema's reference; None if there is none or it cannot be
        determined."""
        reference = schema.get("$ref")
        return target_of(reference, self._root) if isinstance(reference, str) else None

    def _spend(self, work: int = 1) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise _UnclearError


class _Names:
    """The property names of one object. ``declares``: a schema has ``properties``; ``least``: the
    minimum number of properties."""

    def __init__(self) -> None:
        self.all: dict[str, None] = {}
        self.declares = False
        self.least: float = 0
        self.seen: set[int] = set()


def _same(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that apply to the same value."""
    for keyword in _SAME_LISTS:
        yield from _list(schema, keyword)
    for keyword in _SAME_PARTS:
        if keyword in schema:
            yield schema[keyword]
    for keyword in _SAME_MAPS:
        parts = schema.get(keyword)
        if isinstance(parts, dict):
            yield from (part for part in parts.values() if isinstance(part, dict | bool))


def _inner(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that apply to other values."""
    for keyword, value in schema.items():
        if keyword in _INNER_MAPS and isinstance(value, dict):
            yield from value.values()
        elif keyword in _INNER_PARTS:
            yield from value if isinstance(value, list) else (value,)


def _is_idle(keyword: str, value: Any) -> bool:
    """True for ``unevaluatedProperties: false``, which requires just what this module does."""
    return keyword == "unevaluatedProperties" and value is False


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _options(schema: dict[str, Any], name: str) -> set[bytes] | None:
    """Return the values allowed for one property (as JSON), if they are listed."""
    properties = schema.get("properties")
    part = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(part, dict):
        return None
    options = [part["const"]] if "const" in part else part.get("enum")
    if not isinstance(options, list):
        return None
    return {msgspec.json.encode(option) for option in options}


def _all_differ(options: list[set[bytes] | None]) -> bool:
    known = [each for each in options if each is not None]
    return len(known) == len(options) and len(set().union(*known)) == sum(map(len, known))
