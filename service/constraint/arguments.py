"""The constraints on a call's arguments, independent of the format in which they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
from service.constraint.schema_grammar import rewritten
from service.conversation import JsonObject
from service.errors import InvalidRequestError
from service.formats.format import Body
from service.output.calls.keys import can_carry
from service.output.calls.parameters import NULLABLE, NULLS
from service.output.calls.tool_schemas import parameter_types
from service.schema_targets import target_of

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
    """The property ``key`` of the arguments' schema ``root``, which ``schema_texts`` reads."""

    tool: ToolShape
    key: str
    part: Any
    root: JsonObject
    schema_texts: SchemaTexts

    @property
    def types(self) -> frozenset[str]:
        """The types as which the parser reads it."""
        return parameter_types(self.root, self.key)

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
                    f"None of the values that '{self.key[:64]}' may have can be written inside "
                    "this model's tool calls; allow others.",
                    param=f"{self.tool.param}.properties.{self.key}",
                ) from error
            return write(ANY_TEXT, ())

    def text_among_others(self, write: Callable[[BareTexts, Sequence[str]], str]) -> str | None:
        """Return what ``write`` makes of the texts that it may be written as if a mark says so;
        None if there are none or they cannot be enforced."""
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
            f"An argument with the name '{lost[:64]}' cannot be written inside this model's tool "
            "calls; use letters, digits, '_' and '-'.",
            param=f"{tool.param}.properties.{lost}",
        )
    return found._replace(properties=carried)


def argument_schema(part: Any, root: JsonObject) -> JsonObject:
    """Return one argument's schema as a separate schema, with what it refers to in ``root`` as its
    definitions."""
    schema: JsonObject = {"allOf": [part]} if isinstance(part, bool) else part
    moved = _Moved(root, schema)
    written = moved.written(schema)
    definitions = moved.definitions()
    return {**written, "$defs": definitions} if definitions else written


class _Moved:
    """Rewrites references of an argument's schema ``own`` to definitions of that schema alone."""

    def __init__(self, root: JsonObject, own: JsonObject) -> None:
        self._root = root
        self._own = own
        self._places: dict[int, str] = {}  # of what is referred to, by id
        self._waiting: list[Any] = []

    def written(self, schema: JsonObject) -> JsonObject:
        return rewritten(schema, self._change)

    def definitions(self) -> JsonObject:
        """Return what the schemas written so far refer to, and what that refers to."""
        found: JsonObject = {}
        for index, target in enumerate(self._waiting):  # grows meanwhile
            found[str(index)] = self.written(target) if isinstance(target, dict) else target
        return found

    def _change(self, schema: JsonObject) -> JsonObject:
        changed = {key: schema[key] for key in schema if key not in ("$defs", "definitions")}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return changed
        target = target_of(reference, self._root)
        if target is None:
            target = target_of(reference, self._own)
        if target is None:
            return changed
        if id(target) not in self._places:
            self._places[id(target)] = f"#/$defs/{len(self._waiting)}"
            self._waiting.append(target)
        return {**changed, "$ref": self._places[id(target)]}


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
