"""Strings that are written as bare text: which ones a schema allows, as a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from service.constraint.anchors import full_match_regex
from service.constraint.exact_formats import EXACT_FORMATS
from service.constraint.lark import literal, pattern
from service.constraint.text_formats import TEXT_FORMATS
from service.conversation import JsonObject
from service.output.calls.tool_schemas import schema_types
from service.schema_targets import list_in, target_of

BareTexts = Sequence[tuple[JsonObject, ...]]
"""The texts that match every schema of one of these tuples."""

ANY_TEXT: BareTexts = [()]
NULL: BareTexts = [({"const": "null"},)]
ANYTHING = "/(?s:.*)/"
# Keywords that restrict a string: those that a terminal can follow, and the others.
_FOLLOWED = frozenset({"const", "enum", "pattern", "minLength", "maxLength"})
_BEYOND = ("not", "if", "$dynamicRef", "$recursiveRef")
_MOST_REFERENCES = 8
_MOST_TEXTS = 64
_MOST_SCHEMAS = 256  # in these texts together


class BeyondTextError(Exception):
    """A ``keyword`` of the schema cannot be enforced on bare text."""

    def __init__(self, keyword: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword


class NoTextError(Exception):
    """None of a schema's texts can be written."""


class SchemaTexts:
    """Reads parts of the schema ``root``. What a part allows is found once, however many references
    lead to it: they may form more paths than could be followed."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._texts: dict[tuple[int, int], BareTexts | BeyondTextError] = {}
        self._own_texts: dict[int, BareTexts] = {}
        self._nullable: dict[tuple[int, int], bool] = {}

    def of(self, part: Any, references: int = _MOST_REFERENCES) -> BareTexts:
        """Return the strings that ``part`` allows, perhaps among other values. Raises
        BeyondTextError."""
        if isinstance(part, bool):
            return ANY_TEXT if part else []
        if not isinstance(part, dict) or references < 0:
            raise BeyondTextError("$ref")
        known = self._texts.get((id(part), references))
        if known is None:
            try:
                known = self._read(part, references)
            except BeyondTextError as error:
                known = error
            self._texts[id(part), references] = known
        if isinstance(known, BeyondTextError):
            raise known
        return known

    def _read(self, part: JsonObject, references: int) -> BareTexts:
        kinds = _kinds(part)
        if kinds and "string" not in kinds:
            return []
        if id(part) not in self._own_texts:
            self._own_texts[id(part)] = _own(part)
        texts = self._own_texts[id(part)]
        if "$ref" in part:
            found = target_of(str(part["$ref"]), self._root)
            texts = _both(texts, self.of(found, references - 1), "$ref")
        for inner in list_in(part, "allOf"):
            texts = _both(texts, self.of(inner, references - 1), "allOf")
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                options = [self.of(each, references - 1) for each in list_in(part, keyword)]
                if sum(map(len, options)) > _MOST_TEXTS:
                    raise BeyondTextError(keyword)
                if keyword == "oneOf" and sum(map(bool, options)) > 1:
                    _check_apart(options)
                texts = _both(texts, [text for each in options for text in each], keyword)
        return texts

    def allows_null(self, part: Any, references: int = _MOST_REFERENCES) -> bool:
        """True if null matches ``part``."""
        if not isinstance(part, dict) or references < 0:
            return part is True
        known = self._nullable.get((id(part), references))
        if known is None:
            known = self._nullable[id(part), references] = self._reads_null(part, references - 1)
        return known

    def _reads_null(self, part: JsonObject, references: int) -> bool:
        if "type" in part and "null" not in (_kinds(part) or {"null"}):
            return False
        values = part.get("enum")
        if part.get("const") is not None or (isinstance(values, list) and None not in values):
            return False
        others = [*list_in(part, "allOf")]
        if "$ref" in part:
            others.append(target_of(str(part["$ref"]), self._root))
        if not all(self.allows_null(other, references) for other in others):
            return False
        return all(
            any(self.allows_null(option, references) for option in list_in(part, keyword))
            for keyword in ("anyOf", "oneOf")
            if keyword in part
        )


def _kinds(part: JsonObject) -> frozenset[str]:
    """Return the types that the schema names itself."""
    return schema_types({"type": part["type"]}, part) if "type" in part else frozenset()


def _own(part: JsonObject) -> BareTexts:
    """Return the texts that match the schema's own keywords."""
    for keyword in _BEYOND:
        if keyword in part:
            raise BeyondTextError(keyword)
    regex = part.get("pattern")
    if isinstance(regex, str) and full_match_regex(regex) is None:
        raise BeyondTextError("pattern")
    own = {key: part[key] for key in sorted(_FOLLOWED & part.keys())}
    schemas: tuple[JsonObject, ...] = (own,) if own else ()
    if "format" in part:
        name = str(part["format"])
        if name not in TEXT_FORMATS:
            raise BeyondTextError("format")
        regexes = TEXT_FORMATS[name], EXACT_FORMATS.get(name)
        schemas += tuple({"pattern": regex} for regex in regexes if regex is not None)
    return [schemas]


def _both(left: BareTexts, right: BareTexts, keyword: str) -> BareTexts:
    if len(left) * len(right) > _MOST_TEXTS:
        raise BeyondTextError(keyword)
    both = [_merged(one, other) for one in left for other in right]
    if sum(map(len, both)) > _MOST_SCHEMAS:
        raise BeyondTextError(keyword)
    return both


def _merged(one: tuple[JsonObject, ...], other: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
    known = set(map(id, one))
    return (*one, *(schema for schema in other if id(schema) not in known))


def _check_apart(options: Sequence[BareTexts]) -> None:
    """Raise BeyondTextError unless no text can match two of these options of a ``oneOf``."""
    seen: set[str] = set()
    for texts in options:
        listed = [_strings(schemas) for schemas in texts]
        own = {text for each in listed for text in each or ()}
        if None in listed or own & seen:
            raise BeyondTextError("oneOf")
        seen |= own


def text_terminal(
    texts: BareTexts, ends: str, *, never: Sequence[str] = (), never_first: str = ""
) -> str | None:
    """Return a terminal for these texts; None if they are not restricted. ``ends``: a regex for
    what ends the text and cannot occur in it; ``never``: texts that mean something else;
    ``never_first``: a text it cannot begin with. Options that break these rules are left out.
    Raises NoTextError if there are no others."""
    if any(not schemas for schemas in texts) and not never:
        return None
    terms: list[str] = []
    for schemas in texts:
        options = _strings(schemas)
        shapes = [shape for schema in schemas for shape in _shapes(schema)]
        if options is not None:
            allowed = [
                literal(option)
                for option in options
                if not re.search(ends, option)
                and option not in never
                and not (never_first and option.startswith(never_first))
            ]
            if not allowed:
                continue
            shapes.insert(0, f"({' | '.join(allowed)})")
        else:
            shapes = [*(shapes or [ANYTHING]), text_excluding(ends)]
            shapes += [f"~({' | '.join(map(literal, never))})"] if never else []
        terms.append(" & ".join(shapes))
    if not terms:
        raise NoTextError
    return terms[0] if len(terms) == 1 else " | ".join(f"({term})" for term in terms)


def text_excluding(ends: str) -> str:
    """Return a terminal for a text in which this regex matches nothing."""
    return f"~/(?s:.*)({ends})(?s:.*)/"


def _strings(schemas: tuple[JsonObject, ...]) -> list[str] | None:
    """Return the strings that these schemas list; None if they do not list any values."""
    found: list[str] | None = None
    for schema in schemas:
        for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
            if isinstance(values, list):
                strings = [value for value in values if isinstance(value, str)]
                both = frozenset(strings)
                found = strings if found is None else [text for text in found if text in both]
    return found


def _shapes(schema: JsonObject) -> list[str]:
    shapes: list[str] = []
    if isinstance(regex := schema.get("pattern"), str):
        shapes.append(pattern(full_match_regex(regex) or ""))
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) or isinstance(most, int):
        bounds = f"{{{least or 0},{most if isinstance(most, int) else ''}}}"
        shapes.append(f"/(?s:.){bounds}/")
    return shapes
