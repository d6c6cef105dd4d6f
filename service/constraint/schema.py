"""Converts JSON schemas to grammars: which keywords are enforced and which are not.

Draft 2020-12 as llguidance reads it, and older drafts' ``definitions``, ``items`` as a list and
boolean ``exclusiveMinimum``. The output is one JSON value; properties come in the order of the
schema's ``properties``, then those that appear only in ``required``, then others if the schema
requires or describes them (see ``service.constraint.closed``).

- A restricting keyword that cannot be enforced is dropped and reported with its path: strict
  requests are rejected because of it, all others get a notice.
- Keywords that restrict nothing (``title``, ``default``, ``contentEncoding``, unknown ones) are
  annotations, as in the standard.
- Strings use the short escapes for control characters and no others; ``\\uXXXX`` is not generated,
  because it would allow property names that the schema does not match.
- White space between JSON tokens is one space, or a line break and an indent of at most 40; with
  unbounded white space a model might never stop.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Set
from typing import Any, NamedTuple

import msgspec

from service.constraint.anchors import full_match_regex, is_verbose
from service.constraint.closed import closed
from service.constraint.multiples import with_only_multiple
from service.constraint.open_bounds import without_open_whole_bounds
from service.constraint.writable import is_writable
from service.errors import InvalidRequestError
from service.schema_targets import (
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMAS,
    target_of,
    with_pointers,
)

MAX_SCHEMA_BYTES = 256 * 1024
_MAX_SCHEMAS = 10_000
_MAX_DEPTH = 40  # llguidance reads JSON to a depth of 128, and a schema takes up to three


_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
        "uri",
    }
)


# Formats that describe how a text is used, not its content.
_FREE_FORMATS = frozenset({"password", "binary", "path", "textarea"})
_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-%s[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
# Formats beyond the standard's that schema generators write.
_FORMAT_PATTERNS = {
    **{f"uuid{version}": _UUID % version for version in range(1, 9)},
    "base64": _BASE64,
    "base64url": "^[A-Za-z0-9_-]*={0,2}$",
}
# Larger numeric bounds overflow in the code that builds the grammar.
_LARGEST_BOUND = 2**62
_LARGEST_REACHED = 2**59
_LARGEST_EXACT = 2**53  # the library keeps numbers as doubles
_UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum"})
_LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum"})
_NAME_PATTERNS = {"uuid": _UUID % "[0-9a-fA-F]", **_FORMAT_PATTERNS}
# Annotations: keywords that restrict nothing.
_ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$comment", "$schema", "$id"),
    }
)
_COUNTS = frozenset(
    {
        *("minLength", "maxLength", "minItems", "maxItems"),
        *("minProperties", "maxProperties", "minContains", "maxContains"),
    }
)
# Keywords for which null is a value, not an omission.
_NULLABLE = frozenset({"const", "default"})
_DIALECT = re.compile(r"https?://json-schema\.org/draft(-0[467]|/20(19-09|20-12))/schema#?")


def _always(_: Any) -> bool:
    return True


def _unless_false(value: Any) -> bool:
    return value is not False


def _unless_true(value: Any) -> bool:
    return value is not True


# Keywords that restrict values and that no grammar here enforces, with a function that returns
# whether a given value restricts anything.
UNENFORCED: dict[str, Callable[[Any], bool]] = {
    "uniqueItems": _unless_false,
    "contains": _always,  # even if any item will do: there must be one
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


class Enforceable(NamedTuple):
    """The enforceable part of a schema. ``left_out``: an error with its path for each keyword that
    cannot be enforced; ``stood_in_for``: paths of keywords that another keyword enforces almost as
    well."""

    schema: dict[str, Any] | bool
    left_out: list[InvalidRequestError]
    stood_in_for: list[str]

    @property
    def paths(self) -> list[str]:
        """The paths of all keywords that the grammar does not enforce."""
        return [str(error.param) for error in self.left_out] + self.stood_in_for


def enforceable(schema: dict[str, Any] | bool, param: str) -> Enforceable:
    """Return the schema without annotations, keywords that cannot be enforced and properties that
    it does not name; some keywords are rewritten into enforceable ones. Raises InvalidRequestError
    if it is too large or invalid."""
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(
            f"The schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB.", param=param
        )
    schema = with_pointers(schema)
    reader = _Reader(schema, param)
    return Enforceable(reader.read(closed(schema), param, 0), reader.left_out, reader.stood_in_for)


class _Reader:
    """Converts one schema, subschema by subschema."""

    def __init__(self, root: Any, param: str) -> None:
        self._root = root
        self._param = param
        self._count = 0
        self.left_out: list[InvalidRequestError] = []
        self.stood_in_for: list[str] = []

    def read(self, schema: Any, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise InvalidRequestError(
                f"The schema is nested more than {_MAX_DEPTH} levels deep.", param=path[:200]
            )
        self._count += 1
        if self._count > _MAX_SCHEMAS:
            raise InvalidRequestError(
                f"The schema has more than {_MAX_SCHEMAS} subschemas.", param=self._param
            )
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise InvalidRequestError(f"'{path}' is not a schema.", param=path)
        kept = self._kept(schema, path)
        for keyword, value in kept.items():
            here = f"{path}.{keyword}"
            if keyword in SCHEMA_MAPS and isinstance(value, dict):
                kept[keyword] = {
                    name: self.read(part, f"{here}.{name}", depth + 1)
                    for name, part in value.items()
                }
            elif isinstance(value, list) and (keyword in SCHEMA_LISTS or keyword == "items"):
                kept[keyword] = [
                    self.read(part, f"{here}.{index}", depth + 1)
                    for index, part in enumerate(value)
                ]
            elif keyword in SCHEMAS:
                kept[keyword] = self.read(value, here, depth + 1)
        return kept

    def _kept(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """Return one subschema's own keywords, as far as they can be enforced."""
        kept = self._with_named_properties(_said(schema))
        for keyword, restricts in UNENFORCED.items():
            if keyword in kept and restricts(kept.pop(keyword)):
                self._leave_out(
                    f"The schema keyword '{keyword}' cannot be enforced.", f"{path}.{keyword}"
                )
        if _is_about_strings(kept):
            self._read_string(kept, path)
        self._read_values(kept, path)
        self._read_bounds(kept, path)
        self._read_counts(kept, path)
        return without_open_whole_bounds(with_only_multiple(kept))

    def _read_values(self, kept: dict[str, Any], path: str) -> None:
        """Leave out values that would be generated as other ones."""
        for keyword in ("const", "enum"):
            unlike = _generated_otherwise(kept.get(keyword))
            if unlike:
                del kept[keyword]
                self._leave_out(
                    f"The schema keyword '{keyword}' cannot be enforced for {unlike}.",
                    f"{path}.{keyword}",
                )

    def _read_bounds(self, kept: dict[str, Any], path: str) -> None:
        """Replace bounds that are too large for any practical use with smaller ones, and integers
        that no double holds with the next ones inside."""
        for keyword in _UPPER_BOUNDS | _LOWER_BOUNDS:
            bound = kept.get(keyword)
            if not isinstance(bound, int | float) or isinstance(bound, bool):
                continue
            is_upper = keyword in _UPPER_BOUNDS
            outward = bound if is_upper else -bound
            if outward > _LARGEST_BOUND:
                kept[keyword] = _LARGEST_BOUND if is_upper else -_LARGEST_BOUND
            elif outward < -_LARGEST_REACHED:
                del kept[keyword]
                self._leave_out(
                    f"The schema keyword '{keyword}' cannot be enforced with so large a number.",
                    f"{path}.{keyword}",
                )
            elif isinstance(bound, int):
                kept[keyword] = _held_by_double(bound, -math.inf if is_upper else math.inf)

    def _read_counts(self, kept: dict[str, Any], path: str) -> None:
        least, most = kept.get("minProperties"), kept.get("maxProperties")
        required = {name for name in _listed(kept, "required") if isinstance(name, str)}
        given = kept.get("properties")
        named = required | (given.keys() if isinstance(given, dict) else set())
        optional = len(named) - len(required)
        only_named = kept.get("additionalProperties") is False and not kept.get("patternProperties")
        # If all optional properties are known, a grammar can require none or one of them.
        one_more = len(required) + 1 if only_named else -1
        # A property that is not named may be repeated, and counts once when it is parsed.
        if isinstance(least, int | float) and least > max(
            one_more if optional else 1, len(required)
        ):
            kept["minProperties"] = len(required) if optional else max(1, len(required))
            self._leave_out(
                "The schema keyword 'minProperties' cannot be enforced beyond the properties that "
                "are 'required'.",
                f"{path}.minProperties",
            )
        if not optional or not isinstance(most, int | float):
            return
        # Subschemas of one object are read together; the contents of the others are not known here.
        if path.split(".")[-2:-1] == ["allOf"] or kept.keys() & {"allOf", "anyOf", "oneOf", "$ref"}:
            return
        if only_named and most >= len(named):
            del kept["maxProperties"]
        elif len(required) <= most != one_more:
            del kept["maxProperties"]
            self._leave_out(
                "The schema keyword 'maxProperties' cannot be enforced where properties are "
                "optional.",
                f"{path}.maxProperties",
            )

    def _read_string(self, kept: dict[str, Any], path: str) -> None:
        declared, regex = kept.get("format"), kept.get("pattern")
        if isinstance(regex, str) and not can_match(regex):
            del kept["pattern"]
            if declared in _FORMATS or declared in _FORMAT_PATTERNS:
                self.stood_in_for.append(f"{path}.pattern")
            else:
                self._leave_out(
                    "The pattern cannot be enforced: lookaround, backreferences, word boundaries "
                    "and anchors in the middle are not supported.",
                    f"{path}.pattern",
                )
        if not isinstance(declared, str) or declared in _FORMATS:
            return
        del kept["format"]
        # Generators that write both mean the same by them; for an unknown format, the pattern
        # defines it.
        if "pattern" in kept or declared in _FREE_FORMATS:
            return
        # zod puts several patterns into subschemas.
        if any(isinstance(part, dict) and "pattern" in part for part in _listed(kept, "allOf")):
            return
        if declared in _FORMAT_PATTERNS:
            kept["pattern"] = _FORMAT_PATTERNS[declared]
            return
        known = sorted(_FORMATS | _FORMAT_PATTERNS.keys())
        self._leave_out(
            f"The string format '{declared[:64]}' cannot be enforced; supported: "
            f"{', '.join(known)}.",
            f"{path}.format",
        )

    def _with_named_properties(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a copy without ``propertyNames`` if it restricts nothing or can be expressed by
        the properties themselves: dictionary keys that are an enumeration or match a pattern."""
        kept = dict(schema)
        names = self._resolved(schema.get("propertyNames"))
        if not isinstance(names, dict) or "patternProperties" in schema:
            return kept
        restricting = names.keys() - _ANNOTATIONS
        others = schema.get("additionalProperties", True)
        given = schema.get("properties")
        given = given if isinstance(given, dict) else {}
        required = [name for name in _listed(schema, "required") if isinstance(name, str)]
        if names.get("type", "string") != "string":
            return kept
        options = [names["const"]] if "const" in names else names.get("enum")
        if not restricting - {"type"}:
            del kept["propertyNames"]
        elif isinstance(options, list) and restricting <= {"type", "enum", "const"}:
            allowed = {name: given.get(name, others) for name in options if isinstance(name, str)}
            if all(name in allowed for name in required):
                del kept["propertyNames"]
                kept["properties"] = {k: v for k, v in allowed.items() if v is not False}
                kept["additionalProperties"] = False
        elif not (given or required) and (regex := _pattern_of(names, restricting)) is not None:
            del kept["propertyNames"]
            kept["patternProperties"] = {regex: others}
            kept["additionalProperties"] = False
        return kept

    def _resolved(self, schema: Any) -> Any:
        """Follow a reference within this schema, one step only, as generators write it."""
        target = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(target, str):
            return schema
        return target_of(target, self._root)

    def _leave_out(self, message: str, path: str) -> None:
        self.left_out.append(InvalidRequestError(message, param=path))


def _held_by_double(number: int, towards: float) -> int:
    """Return the integer itself if a double holds it, else the next one in this direction."""
    nearest = float(number)
    is_beyond = nearest > number if towards < 0 else nearest < number
    return int(math.nextafter(nearest, towards) if is_beyond else nearest)


def _generated_otherwise(value: Any) -> str | None:
    """Name what in a JSON value, at any depth, would be generated as something else."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, int) and abs(one) > _LARGEST_EXACT:
            return "integers beyond ±2^53; use strings"
        if isinstance(one, str) and not is_writable(one):
            return "texts with control characters that have no short escape in JSON"
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return None


def _said(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop nulls that serializers write for unset keywords (``"pattern": null``), and a ``$schema``
    that is not one of JSON Schema's drafts. Counts may be written as ``2.0``."""
    dialect = schema.get("$schema")
    foreign = "$schema" in schema and not (isinstance(dialect, str) and _DIALECT.fullmatch(dialect))
    return {
        keyword: int(value) if keyword in _COUNTS and _is_whole(value) else value
        for keyword, value in schema.items()
        if (value is not None or keyword in _NULLABLE) and not (keyword == "$schema" and foreign)
    }


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _pattern_of(names: dict[str, Any], restricting: Set[str]) -> str | None:
    """Return the pattern that fully describes these property names, if there is one."""
    regex: Any = None
    if restricting <= {"type", "pattern"}:
        regex = names["pattern"]
    elif restricting <= {"type", "format"}:
        regex = _NAME_PATTERNS.get(str(names["format"]))
    elif restricting <= {"type", "format", "pattern"}:
        regex = names["pattern"]  # zod writes both, and means the same by them
    return regex if isinstance(regex, str) and can_match(regex) else None


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


# In the syntax of Rust's regex crate: escapes, character classes, and group openings.
_REGEX_PARTS = re.compile(r"\\(.)|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)|(\(\?<?[=!])", re.DOTALL)


def can_match(regex: str) -> bool:
    """True if the pattern has nothing that an automaton cannot match."""
    if any(
        part[2] or (part[1] is not None and part[1] in "123456789kbB")
        for part in _REGEX_PARTS.finditer(regex)
    ):
        return False
    return is_verbose(regex) or full_match_regex(regex) is not None


def _is_about_strings(schema: dict[str, Any]) -> bool:
    kind = schema.get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)
