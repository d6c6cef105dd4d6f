"""What is wrong with something that an operator wrote: which field, and what is allowed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

_UNKNOWN = re.compile(r"Object contains unknown field (.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field (.*)", re.DOTALL)
_EXPECTED = re.compile(
    r"Expected ([a-z]+(?: \| [a-z]+)*)"
    r"(?: (of length )?([<>]=?) (\S+)| matching regex (.*?))?(?:, got (.*))?"
)
# Names of unknown fields come from clients, so only what comes last is the path.
_WITH_PATH = re.compile(r"(.*?)(?: - at `\$([^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d{1,9})\]")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "greater than", "<": "less than"}
_MOST_NAME_CHARS = 64
IN_WORDS = "in words"  # in the ``extra`` of a ``Meta`` with a pattern: what matches, for people


class Problem(NamedTuple):
    """``field``: the path of the one at fault, in which items are counted from 1: ``keys[2]`` is
    the second; empty for the whole. ``text`` names it and ends without a full stop."""

    field: str
    text: str


def problem_in(error: msgspec.ValidationError, kind: type[Any], whole: str = "it") -> Problem:
    """Return ``error`` in words. ``kind``: what was decoded; ``whole``: what to call it."""
    found = _WITH_PATH.fullmatch(str(error))
    assert found is not None  # it matches any text
    text, path = found[1].replace("`", ""), found[2] or ""
    field = _STEP.sub(lambda found: f"[{int(found[2]) + 1}]" if found[2] else found[0], path)
    field = field.removeprefix(".")
    shown = f"'{field}'" if field else whole
    if unknown := _UNKNOWN.fullmatch(text):
        name = unknown[1][:_MOST_NAME_CHARS]
        at = _type_at(kind, path)
        known = at.fields if isinstance(at, inspect.StructType) else ()
        fields = ", ".join(one.encode_name for one in known) or "none"
        return Problem(_joined(field, name), f"{shown} has no field '{name}'; it may have {fields}")
    if missing := _MISSING.fullmatch(text):
        field = _joined(field, missing[1])
        return Problem(field, f"'{field}' is missing")
    if text.startswith("Invalid enum value") and (choices := _choices(_type_at(kind, path))):
        return Problem(field, f"{shown} must be one of {', '.join(choices)}")
    if expected := _EXPECTED.fullmatch(text):
        words = _words(_declared_at(kind, path)) if expected[5] is not None else ""
        return Problem(field, f"{shown} must be {words or _expected(expected)}")
    return Problem(field, f"{shown}: {text[:1].lower()}{text[1:]}")


def plain(number: float) -> str:
    """Return a number as people write it."""
    return f"{int(number) if number == int(number) else number:,}"


def _joined(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _expected(found: re.Match[str]) -> str:
    names, of_length, sign, bound, pattern, got = found.groups()
    kind = " or ".join(_KINDS.get(name, name) for name in names.split(" | "))
    if pattern is not None:
        return f"{kind} that matches {pattern}"
    if bound is not None:
        length = "with a length of " if of_length else ""
        return f"{kind}, {length}{_BOUNDS[sign]} {plain(float(bound))}"
    return kind if got is None else f"{kind}, not {_KINDS.get(got, got)}"


def _type_at(kind: type[Any], path: str) -> inspect.Type | None:
    """Return the type of what has this path, as msgspec writes it, without bounds and ``| None``;
    None if it is not known."""
    found = _declared_at(kind, path)
    return None if found is None else _bare(found)


def _declared_at(kind: type[Any], path: str) -> inspect.Type | None:
    declared: inspect.Type = inspect.type_info(kind)
    for name, _ in _STEP.findall(path):
        found = _bare(declared)
        if name and isinstance(found, inspect.StructType):
            types = {one.encode_name: one.type for one in found.fields}
            if name not in types:
                return None
            declared = types[name]
        elif not name and isinstance(found, inspect.VarTupleType | inspect.ListType):
            declared = found.item_type
        else:
            return None
    return declared


def _words(declared: inspect.Type | None) -> str:
    """Return a type's description of its pattern; empty if it has none."""
    if isinstance(declared, inspect.Metadata):
        return str((declared.extra or {}).get(IN_WORDS, ""))
    if isinstance(declared, inspect.UnionType):
        return next(filter(None, map(_words, declared.types)), "")
    return ""


def _bare(kind: inspect.Type) -> inspect.Type | None:
    """Return the type without bounds and ``| None``; None if it is one of several."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        members = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _bare(members[0]) if len(members) == 1 else None
    return kind


def _choices(kind: inspect.Type | None) -> list[str]:
    if isinstance(kind, inspect.LiteralType):
        return [str(value) for value in kind.values]
    return [one.value for one in kind.cls] if isinstance(kind, inspect.EnumType) else []
