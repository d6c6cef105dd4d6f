"""The constraints on a call's arguments, independent of the format in which they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from service.constraint.bare_text import (
    ANY_TEXT,
    NULL,
    BareTexts,
    BeyondTextError,
    NoTextError,
    SchemaTexts,
)
from service.constraint.flat import CannotFlattenError, flat_regex
from service.constraint.listed import Listed, listed
from service.constraint.request import Grammar, Regex, ToolShape
from service.constraint.schema import enforceable
from service.constraint.schema_grammar import as_generated, rewritten, schema_grammar
from service.conversation import JsonObject
from service.errors import InvalidRequestError
from service.formats.format import Body
from service.output.calls.keys import can_carry
from service.output.calls.parameters import NULLABLE, NULLS
from service.schema_targets import list_in, target_of

_ANY_OBJECT: JsonObject = {"type": "object"}


def is_binding(tool: ToolShape) -> bool:
    """True if a request must be rejected when the tool's schema cannot be enforced."""
    return tool.strict or tool.custom


def arguments_schema(tool: ToolShape, *, exact: bool) -> JsonObject:
    """Return the JSON schema of the arguments. ``exact``: use the tool's schema even if it is not
    strict.

    Raises InvalidRequestError if a strict tool's schema cannot be enforced.
    """
    if tool.custom:
        return _custom_arguments(tool)
    if tool.parameters is None or not (tool.strict or exact):
        return _ANY_OBJECT
    read = enforceable(tool.parameters, tool.param)
    if tool.strict and read.left_out:
        raise read.left_out[0]
    schema = read.schema
    assert isinstance(schema, dict)
    # Even if the schema also allows other types, arguments must be an object.
    return schema if "type" in schema else {**schema, "type": "object"}


class Argument(NamedTuple):
    """The property ``key`` of the arguments' schema, which ``schema_texts`` reads and ``schemas``
    writes. ``types``: those as which the parser reads it."""

    tool: ToolShape
    key: str
    part: Any
    types: frozenset[str]
    schema_texts: SchemaTexts
    schemas: ArgumentSchemas

    def texts(self) -> tuple[BareTexts, Sequence[str]]:
        """Return the texts that it may be written as, and texts that mean something else. Raises
        InvalidRequestError if they cannot be enforced and must be."""
        try:
            texts = self.schema_texts.of(self.part)
        except BeyondTextError as error:
            if is_binding(self.tool):
                raise InvalidRequestError(
                    f"'{error.keyword}' of a string cannot be enforced inside this model's tool "
                    "calls.",
                    param=f"{self.tool.param}.properties.{self.key}.{error.keyword}",
                ) from error
            texts = ANY_TEXT
        if self.types != NULLABLE:
            return texts, ()
        is_nullable = self.schema_texts.allows_null(self.part)
        return ([*texts, *NULL], ()) if is_nullable else (texts, NULLS)

    def as_text(self, write: Callable[[BareTexts, Sequence[str]], str]) -> str:
        """Return what ``write`` makes of ``texts``. Raises InvalidRequestError as well if it can
        write none of them, and they must be followed."""
        try:
            return write(*self.texts())
        except NoTextError as error:
            if is_binding(self.tool):
                raise InvalidRequestError(
                    f"None of the allowed values of '{self.key[:64]}' can be written in this "
                    "model's tool calls; allow other values.",
                    param=f"{self.tool.param}.properties.{self.key}",
                ) from error
            return write(ANY_TEXT, ())

    def text_among_others(self, write: Callable[[BareTexts, Sequence[str]], str]) -> str | None:
        """Return what ``write`` makes of the texts that it may be written as where an attribute
        marks it as text; None if there are none or they cannot be enforced."""
        try:
            return write(self.schema_texts.of(self.part), ())
        except (BeyondTextError, NoTextError):
            return None


def listed_arguments(tool: ToolShape, schema: JsonObject, body: Body) -> Listed:
    """Return the arguments that the schema lists, without those whose names a call that is written
    like this cannot carry. Raises InvalidRequestError if they must match it and a list of them does
    not ensure that."""
    found = listed(schema)
    if found.left_out and is_binding(tool):
        keyword = found.left_out[0]
        raise InvalidRequestError(
            f"'{keyword}' of the arguments cannot be enforced inside this model's tool calls.",
            param=f"{tool.param}.{keyword}",
        )
    carried = {key: part for key, part in found.properties.items() if can_carry(body, key)}
    lost = next((key for key in found.properties if key not in carried), None)
    if lost is not None and is_binding(tool):
        raise InvalidRequestError(
            f"An argument with the name '{lost[:64]}' cannot be used in this model's tool "
            "calls; use letters, digits, '_' and '-'.",
            param=f"{tool.param}.properties.{lost}",
        )
    return found._replace(properties=carried)


class _Written(NamedTuple):
    """A part of a schema as JSON, and the places of what it refers to."""

    json: bytes
    places: Set[int]


class ArgumentSchemas:
    """Writes parts of the schema ``root`` as grammars, each with what it refers to as its own
    definitions. What several arguments refer to, or have in common, is written once.
    ``check_room``: raises an error if so many more characters are too many."""

    def __init__(
        self, root: JsonObject, check_room: Callable[[int], None], *, lenient: bool
    ) -> None:
        self._root = root
        self._check_room = check_room
        self._lenient = lenient
        self._own: JsonObject = {}  # the argument that is being written
        self._places: dict[int, int] = {}  # in ``_targets``, by id
        self._targets: list[Any] = []
        self._parts: dict[int, _Written] = {}  # by id
        self._grammars: dict[int, str] = {}

    def grammar(self, part: Any) -> str:
        """Return a term for an argument with this schema, which must be kept."""
        if id(part) not in self._grammars:
            self._grammars[id(part)] = self._grammar(part)
        return self._grammars[id(part)]

    def _grammar(self, part: Any) -> str:
        self._own = part if isinstance(part, dict) else {}
        if isinstance(part, bool) or part.keys() == {"allOf"}:
            # ``listed`` joins what applies to several arguments.
            parts = [part] if isinstance(part, bool) else list_in(part, "allOf")
            joined = [self._written(each) for each in parts]
            self._check_room(sum(len(each.json) for each in joined))
            schema: JsonObject = {"allOf": [msgspec.Raw(each.json) for each in joined]}
            places: Set[int] = {place for each in joined for place in each.places}
        else:
            schema, places = self._moved(part)
        if definitions := self._reached(places):
            schema = {**schema, "$defs": definitions}
        return schema_grammar(schema, lenient=self._lenient)

    def _reached(self, places: Iterable[int]) -> JsonObject:
        """Return the definitions at these places, and all those that they refer to."""
        found: JsonObject = {}
        size, waiting = 0, [*places]
        while waiting:
            place = waiting.pop()
            if str(place) in found:
                continue
            written = self._written(self._targets[place])
            size += len(written.json)
            self._check_room(size)
            found[str(place)] = msgspec.Raw(written.json)
            waiting += written.places
        return found

    def _written(self, part: Any) -> _Written:
        if not isinstance(part, dict):
            return _Written(msgspec.json.encode(part), frozenset())
        if id(part) not in self._parts:
            moved, places = self._moved(part)
            json = msgspec.json.encode(as_generated(moved))
            self._parts[id(part)] = _Written(json, frozenset(places))
        return self._parts[id(part)]

    def _moved(self, schema: JsonObject) -> tuple[JsonObject, Set[int]]:
        """Return the schema with its references to their places among the definitions, and these
        places."""
        places: set[int] = set()

        def change(one: JsonObject) -> JsonObject:
            changed = {key: one[key] for key in one if key not in ("$defs", "definitions")}
            reference = one.get("$ref")
            target = self._target(reference) if isinstance(reference, str) else None
            if target is None:
                return changed
            place = self._places.setdefault(id(target), len(self._targets))
            if place == len(self._targets):
                self._targets.append(target)
            places.add(place)
            return {**changed, "$ref": f"#/$defs/{place}"}

        return rewritten(schema, change), places

    def _target(self, reference: str) -> Any:
        found = target_of(reference, self._root)
        return target_of(reference, self._own) if found is None else found


def _custom_arguments(tool: ToolShape) -> JsonObject:
    """A custom tool's text is sent as a single string argument."""
    text: JsonObject = {"type": "string"}
    match tool.input:
        case Regex(pattern=regex):
            text["pattern"] = f"^(?:{regex})$"
        case Grammar(text=grammar, param=param):
            text["pattern"] = f"^(?:{_flat(grammar, param)})$"
    return {
        "type": "object",
        "properties": {tool.input_key: text},
        "required": [tool.input_key],
        "additionalProperties": False,
    }


def _flat(grammar: str, param: str) -> str:
    try:
        return flat_regex(grammar)
    except CannotFlattenError as error:
        raise InvalidRequestError(
            f"The grammar cannot be enforced inside this model's tool calls: {error}.",
            param=param,
        ) from error
