"""Strings that are written as bare text: which ones a schema allows, as a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from service.constraint.anchors import full_match_regex
from service.constraint.exact_formats import EXACT_FORMATS
from service.constraint.lark import literal, pattern
from service.constraint.text_formats import TEXT_FORMATS
from service.conversation import JsonObject
from service.output.calls.tool_schemas import schema_types
from service.schema_targets import list_in, target_of

BareTexts = Sequence[tuple[JsonObject, ...]]
"""The texts that match every schema of one of these tuples. Listed values are the keys of
``enum``."""

ANY_TEXT: BareTexts = [()]
NULL: BareTexts = [({"enum": {"null": None}},)]
ANYTHING = "/(?s:.*)/"
# Keywords that restrict a string: those that a terminal can follow besides lists of values, and
# those that it cannot follow.
_FOLLOWED = ("maxLength", "minLength", "pattern")
_BEYOND = ("not", "if", "$dynamicRef", "$recursiveRef")
_MOST_REFERENCES = 8
_MOST_TEXTS = 64
_MOST_SCHEMAS = 256  # in these texts together
_MOST_WORK = 50_000  # schemas in the texts of all parts, and values compared


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
        self._schemas: dict[bytes, JsonObject] = {}  # equal ones are one, by their JSON
        self._nullable: dict[tuple[int, int], bool] = {}
        self._work = 0

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
            self._own_texts[id(part)] = [_distinct_schemas(map(self._only, _own(part)))]
        texts = self._own_texts[id(part)]
        if "$ref" in part:
            found = target_of(str(part["$ref"]), self._root)
            texts = self._both(texts, self.of(found, references - 1), "$ref")
        for inner in list_in(part, "allOf"):
            texts = self._both(texts, self.of(inner, references - 1), "allOf")
        for keyword in ("anyOf", "oneOf"):
            if keyword in part:
                options = [self.of(each, references - 1) for each in list_in(part, keyword)]
                self._spend(sum(map(len, options)), keyword)
                if keyword == "oneOf" and sum(map(bool, options)) > 1:
                    self._check_apart(options)
                any_of = _distinct(text for each in options for text in each)
                texts = self._both(texts, any_of, keyword)
        return texts

    def _only(self, schema: JsonObject) -> JsonObject:
        """Return the one of all equal schemas."""
        return self._schemas.setdefault(msgspec.json.encode(schema), schema)

    def _both(self, left: BareTexts, right: BareTexts, keyword: str) -> BareTexts:
        if left is right or (left == ANY_TEXT and len(right) <= _MOST_TEXTS):
            return right
        if len(left) * len(right) > _MOST_TEXTS:
            raise BeyondTextError(keyword)
        both = _distinct(_distinct_schemas((*one, *other)) for one in left for other in right)
        if sum(map(len, both)) > _MOST_SCHEMAS:
            raise BeyondTextError(keyword)
        self._spend(sum(map(len, both)), keyword)
        return both

    def _check_apart(self, options: Sequence[BareTexts]) -> None:
        """Raise BeyondTextError unless no text can match two of these options of a ``oneOf``."""
        seen: set[str] = set()
        for texts in options:
            listed = [_strings(schemas) for schemas in texts]
            self._spend(sum(len(each or ()) for each in listed), "oneOf")
            own = {text for each in listed for text in each or ()}
            if None in listed or own & seen:
                raise BeyondTextError("oneOf")
            seen |= own

    def _spend(self, work: int, keyword: str) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise BeyondTextError(keyword)

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


def _own(part: JsonObject) -> list[JsonObject]:
    """Return schemas that are together what the schema's own keywords say of a text."""
    for keyword in _BEYOND:
        if keyword in part:
            raise BeyondTextError(keyword)
    regex = part.get("pattern")
    if isinstance(regex, str) and full_match_regex(regex) is None:
        raise BeyondTextError("pattern")
    own = {key: part[key] for key in _FOLLOWED if key in part}
    lists = [part["enum"]] if isinstance(part.get("enum"), list) else []
    lists += [[part["const"]]] if "const" in part else []
    schemas: list[JsonObject] = [{"enum": _strings_of(values)} for values in lists]
    schemas += [own] if own else []
    if "format" in part:
        name = str(part["format"])
        if name not in TEXT_FORMATS:
            raise BeyondTextError("format")
        regexes = TEXT_FORMATS[name], EXACT_FORMATS.get(name)
        schemas += [{"pattern": regex} for regex in regexes if regex is not None]
    return schemas


def _distinct(texts: Iterable[tuple[JsonObject, ...]]) -> BareTexts:
    return list({frozenset(map(id, schemas)): schemas for schemas in texts}.values())


def _distinct_schemas(schemas: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
    return tuple({id(schema): schema for schema in schemas}.values())


class TextTerminals:
    """Writes terminals for texts; what several have in common is written once. ``ends``: a regex
    for what ends a text and cannot occur in it; ``never_first``: a text it cannot begin with;
    ``check_room``: raises an error if so many more characters are too many."""

    def __init__(
        self, ends: str, check_room: Callable[[int], None], *, never_first: str = ""
    ) -> None:
        self._ends = ends
        self._check_room = check_room
        self._never_first = never_first
        self._terminals: dict[tuple[Any, ...], str] = {}
        self._listed: dict[tuple[Any, ...], str] = {}
        self._literals: dict[str, str] = {}  # empty for values that cannot be written
        self._shapes: dict[int, list[str]] = {}
        self._kept: list[BareTexts] = []  # their schemas are known by their ids

    def terminal(self, texts: BareTexts, *, never: Sequence[str] = ()) -> str | None:
        """Return a terminal for these texts; None if they are not restricted. ``never``: texts that
        mean something else. Options that break the rules are left out. Raises NoTextError if there
        are no others."""
        if any(not schemas for schemas in texts) and not never:
            return None
        key = (*never, *(tuple(map(id, schemas)) for schemas in texts))
        if key not in self._terminals:
            self._kept.append(texts)
            self._terminals[key] = self._written(texts, never)
        return self._terminals[key]

    def _written(self, texts: BareTexts, never: Sequence[str]) -> str:
        terms: list[str] = []
        size = 0
        for schemas in texts:
            shapes = [shape for schema in schemas for shape in self._shapes_of(schema)]
            lists = tuple(schema for schema in schemas if "enum" in schema)
            if lists:
                options = self._options(lists, never)
                if not options:
                    continue
                shapes.insert(0, f"({options})")
            else:
                shapes = [*(shapes or [ANYTHING]), text_excluding(self._ends)]
                shapes += [f"~({' | '.join(map(literal, never))})"] if never else []
            size += sum(map(len, shapes))
            self._check_room(size)
            terms.append(" & ".join(shapes))
        if not terms:
            raise NoTextError
        return terms[0] if len(terms) == 1 else " | ".join(f"({term})" for term in terms)

    def _options(self, lists: tuple[JsonObject, ...], never: Sequence[str]) -> str:
        """Return the values in all of these lists, as alternatives."""
        key = (*never, *map(id, lists))
        if key not in self._listed:
            literals = [
                self._literal(option) for option in _strings(lists) or () if option not in never
            ]
            self._check_room(sum(map(len, literals)))
            self._listed[key] = " | ".join(filter(None, literals))
        return self._listed[key]

    def _literal(self, option: str) -> str:
        known = self._literals.get(option)
        if known is None:
            is_bad = re.search(self._ends, option) or (
                self._never_first and option.startswith(self._never_first)
            )
            known = self._literals[option] = "" if is_bad else literal(option)
        return known

    def _shapes_of(self, schema: JsonObject) -> list[str]:
        if id(schema) not in self._shapes:
            self._shapes[id(schema)] = _shapes(schema)
        return self._shapes[id(schema)]


def text_excluding(ends: str) -> str:
    """Return a terminal for a text in which this regex matches nothing."""
    return f"~/(?s:.*)({ends})(?s:.*)/"


def _strings_of(values: list[Any]) -> dict[str, None]:
    return dict.fromkeys(value for value in values if isinstance(value, str))


def _strings(schemas: tuple[JsonObject, ...]) -> list[str] | None:
    """Return the strings that these schemas list; None if they do not list any values."""
    lists = [schema["enum"] for schema in schemas if "enum" in schema]
    if not lists:
        return None
    return [text for text in min(lists, key=len) if all(text in found for found in lists)]


def _shapes(schema: JsonObject) -> list[str]:
    shapes: list[str] = []
    if isinstance(regex := schema.get("pattern"), str):
        shapes.append(pattern(full_match_regex(regex) or ""))
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) or isinstance(most, int):
        bounds = f"{{{least or 0},{most if isinstance(most, int) else ''}}}"
        shapes.append(f"/(?s:.){bounds}/")
    return shapes
