"""What the schema of a tool's arguments says about their values, as far as parsers use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from service.output.calls.sink import ToolSchemas
from service.schema_targets import list_in, target_of, with_pointers

_MAX_REFERENCES = 8
_MOST_PARTS = 16_384  # kept of all tools together
_MOST_WORK = 32_768  # parts, names and items of lists looked at
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
# Keywords next to a reference that count as well.
_SAYS_ITSELF = frozenset({"type", "const", "enum", "properties"})
# Keywords with the schemas of other values in them, or of the same one.
_HOLDS_OTHERS = frozenset(
    {"properties", "additionalProperties", "items", "prefixItems", "$ref", *_ALTERNATIVES}
)
_ANY: dict[str, Any] = {}
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


def parameter_types(schema: dict[str, Any] | None, key: str) -> frozenset[str]:
    """Return the JSON types that a tool's schema allows for an argument; empty if unspecified."""
    return schema_types(in_schema(schema, key, schema), schema)


def types_of_parameters(schema: dict[str, Any], keys: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return ``parameter_types`` of all of these arguments, in one pass."""
    own: dict[str, list[dict[str, Any]]] = {}
    others: Any = None
    for one in _same_value(schema, schema, _Budget(_MOST_WORK)):
        properties = one.get("properties")
        for name, found in properties.items() if isinstance(properties, dict) else ():
            if isinstance(found, dict):
                own.setdefault(name, []).append(found)
        rest = one.get("additionalProperties")
        others = rest if others is None and isinstance(rest, dict) else others
    # All are kept until the end, as parts are known by their ids.
    parts = {name: _together(schemas) for name, schemas in own.items()}
    known: dict[int, set[str]] = {}
    return {
        key: frozenset(_types(parts.get(key, others), schema, _MAX_REFERENCES, known))
        for key in keys
    }


def schema_types(part: Any, root: Any) -> frozenset[str]:
    """Return the JSON types allowed by ``part`` of the schema ``root``; empty if unspecified."""
    if not isinstance(root, dict):
        return frozenset()
    return frozenset(_types(part, root, _MAX_REFERENCES, {}))


def in_schema(part: Any, key: str | int, root: Any) -> Any:
    """Return the schema of property or array item ``key`` within ``part`` of the schema ``root``;
    None if unspecified."""
    if not isinstance(root, dict):
        return None
    own: list[dict[str, Any]] = []
    others: Any = None
    for one in _same_value(part, root, _Budget(_MOST_WORK)):
        if isinstance(key, int):
            first = one.get("prefixItems")
            found = first[key] if isinstance(first, list) and key < len(first) else one.get("items")
        else:
            properties = one.get("properties")
            found = properties.get(key) if isinstance(properties, dict) else None
            rest = one.get("additionalProperties")
            others = rest if others is None and isinstance(rest, dict) else others
        if isinstance(found, dict):
            own.append(found)
    return _together(own) if own else others


def property_names(part: Any, root: Any) -> list[str]:
    """Return the names of the properties within ``part`` of the schema ``root``."""
    if not isinstance(root, dict):
        return []
    found: dict[str, None] = {}
    for one in _same_value(part, root, _Budget(_MOST_WORK)):
        properties = one.get("properties")
        found |= dict.fromkeys(properties if isinstance(properties, dict) else ())
    return list(found)


def _together(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what these schemas of one value say together."""
    said = [schema for schema in schemas if schema]
    return {"allOf": said} if len(said) > 1 else (said or schemas)[0]


class _Budget:
    """``left``: how many parts, names and items of lists may still be looked at."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, work: int = 1) -> bool:
        """Return whether there was enough."""
        self.left -= work
        return self.left >= 0


def _same_value(part: Any, root: dict[str, Any], budget: _Budget) -> Iterator[dict[str, Any]]:
    """Yield ``part`` and the schemas that it applies to the same value, each once, until the budget
    is spent."""
    seen: set[int] = set()
    waiting = [(part, _MAX_REFERENCES)]
    while waiting:
        one, references = waiting.pop()
        if not isinstance(one, dict) or references < 0 or id(one) in seen:
            continue
        lists = [list_in(one, keyword) for keyword in _ALTERNATIVES]
        if not budget.spend(1 + sum(map(len, lists))):
            return
        seen.add(id(one))
        yield one
        inner = [option for options in lists for option in options]
        if isinstance(reference := one.get("$ref"), str):
            inner.insert(0, target_of(reference, root))
        waiting += [(option, references - 1) for option in reversed(inner)]


def _types(
    part: Any, root: dict[str, Any], references: int, known: dict[int, set[str]]
) -> set[str]:
    """``known``: the types of parts that were visited before, by id."""
    if not isinstance(part, dict) or references < 0:
        return set()
    found = known.get(id(part))
    if found is None:
        known[id(part)] = set()
        found = known[id(part)] = _types_of(part, root, references, known)
    return found


def _types_of(
    part: dict[str, Any], root: dict[str, Any], references: int, known: dict[int, set[str]]
) -> set[str]:
    declared = part.get("type")
    if isinstance(declared, str):
        return _named(declared)
    if isinstance(declared, list):
        names = [_named(kind) for kind in declared if isinstance(kind, str)]
        return set().union(*names) if all(names) else set()
    if isinstance(reference := part.get("$ref"), str):
        return _types(target_of(reference, root), root, references - 1, known)
    if "const" in part:
        return {type_of(part["const"])}
    if isinstance(options := part.get("enum"), list):
        return {type_of(option) for option in options}
    found: set[str] = set()
    for keyword in _ALTERNATIVES:
        for inner in list_in(part, keyword):
            types = _types(inner, root, references - 1, known)
            if not types and keyword != "allOf":
                return set()  # any type is allowed
            found |= types
    if not found and ("properties" in part or "additionalProperties" in part):
        return {"object"}
    return {"array"} if not found and "items" in part else found


def _named(kind: str) -> set[str]:
    kind = kind.strip().lower()
    return set() if kind == "any" else {_TYPE_NAMES.get(kind, kind)}


def type_of(value: Any) -> str:
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


def reduced(tools: ToolSchemas) -> dict[str, dict[str, Any] | None]:
    """Reduce the tools' schemas to what parsers need: the names of properties, in their order, and
    the types of values at any depth. The size is bounded; what is too much is left out."""
    reducer = _Reducer()
    return {name: reducer.schema(schema) for name, schema in tools.items()}


class _Reducer:
    """Writes each part of a schema once, as a definition, and refers to it where it is used."""

    def __init__(self) -> None:
        self._parts_left = _MOST_PARTS
        self._budget = _Budget(_MOST_WORK)
        # What was joined, by the ids of what it consists of; kept, as parts are known by their ids.
        self._joined: dict[tuple[int, ...], dict[str, Any]] = {}
        self._root: dict[str, Any] = {}
        self._known: dict[int, set[str]] = {}
        self._places: dict[int, str] = {}
        self._waiting: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def schema(self, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if not schema:
            return None
        schema = with_pointers(schema)
        self._root, self._known, self._joined = schema, {}, {}
        written: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        self._places, self._waiting = {id(schema): "#"}, [(schema, written)]
        for part, into in self._waiting:  # grows meanwhile: outer parts come first
            into |= self._members(part, definitions)
        if definitions:
            written["$defs"] = definitions
        return written or None

    def _members(self, part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        properties: dict[str, list[dict[str, Any]]] = {}
        found: dict[str, Any] = {}
        for one in _same_value(part, self._root, self._budget):
            own = one.get("properties")
            for name, inner in own.items() if isinstance(own, dict) else ():
                if not self._budget.spend():
                    break
                properties.setdefault(name, []).append(inner if isinstance(inner, dict) else _ANY)
            for keyword in ("additionalProperties", "items", "prefixItems"):
                if isinstance(one.get(keyword), dict | list):
                    found.setdefault(keyword, one[keyword])
        written: dict[str, Any] = {}
        if properties:
            parts = {
                name: self._part(self._kept(schemas), definitions)
                for name, schemas in properties.items()
            }
            written["properties"] = {name: p for name, p in parts.items() if p is not None}
        for keyword, value in found.items():
            if keyword == "prefixItems" and isinstance(value, list):
                first = value[: max(0, self._parts_left)]
                written[keyword] = [self._part(inner, definitions) or {} for inner in first]
            elif isinstance(value, dict) and (inner := self._part(value, definitions)) is not None:
                written[keyword] = inner
        return written

    def _kept(self, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        distinct = {id(schema): schema for schema in schemas}
        return self._joined.setdefault(tuple(distinct), _together([*distinct.values()]))

    def _part(self, part: Any, definitions: dict[str, Any]) -> dict[str, Any] | None:
        """Return a reference to the part, or the part itself if there is nothing in it; None if
        that would be too much."""
        if self._parts_left <= 0:
            return None
        self._parts_left -= 1
        if not isinstance(part, dict):
            part = _ANY  # types are known by the ids of parts
        for _ in range(_MAX_REFERENCES):
            reference = part.get("$ref")
            if not isinstance(reference, str) or part.keys() & _SAYS_ITSELF:
                break
            found = target_of(reference, self._root)
            if not isinstance(found, dict) or not self._budget.spend():
                break
            part = found
        if (place := self._places.get(id(part))) is not None:
            return {"$ref": place}
        types = _types(part, self._root, _MAX_REFERENCES, self._known)
        written: dict[str, Any] = {"type": sorted(types)} if types else {}
        if types and not types & {"object", "array"}:
            return written
        if not part.keys() & _HOLDS_OTHERS:
            return written
        name = str(len(definitions))
        definitions[name] = written
        self._places[id(part)] = f"#/$defs/{name}"
        self._waiting.append((part, written))
        return {"$ref": self._places[id(part)]}
