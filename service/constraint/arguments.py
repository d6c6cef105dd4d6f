"""The constraints on a call's arguments, independent of the format in which they are written."""

from __future__ import annotations

from typing import Any

from service.constraint.anchors import full_match_regex
from service.constraint.flat import CannotFlattenError, flat_regex
from service.constraint.lark import literal, pattern, quoted
from service.constraint.request import Grammar, Regex, ToolShape
from service.constraint.schema import enforceable
from service.conversation import JsonObject
from service.errors import InvalidRequestError
from service.output.calls.coercion import resolve, schema_types

_ANY_OBJECT: JsonObject = {"type": "object"}
_NOTHING = "/a/ & /b/"  # a terminal that matches nothing
# Keywords that cannot be enforced on bare text between tags.
_BEYOND_TEXT = frozenset({"format", "allOf", "anyOf", "oneOf", "$ref"})
# Keywords that restrict a string among other values: those that are followed, and the others.
_OF_TEXT = frozenset({"type", "const", "enum", "pattern", "minLength", "maxLength"})
_CHOICES = frozenset({"anyOf", "oneOf"})
_BEYOND_PARTS = frozenset({"format", "allOf", "not", "if", "$dynamicRef", "$recursiveRef"})


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


def argument_schema(part: Any, root: JsonObject) -> JsonObject:
    """Return one argument's schema as a separate schema, with the definitions from ``root``."""
    schema: JsonObject = {"allOf": [part]} if isinstance(part, bool) else dict(part)
    for keyword in ("$defs", "definitions"):
        if keyword in root:
            schema.setdefault(keyword, root[keyword])
    return schema


def check_text(schema: JsonObject, param: str) -> None:
    """Raise InvalidRequestError for keywords that cannot be enforced on bare text."""
    beyond = _BEYOND_TEXT & schema.keys()
    if isinstance(regex := schema.get("pattern"), str) and full_match_regex(regex) is None:
        beyond |= {"pattern"}
    for keyword in sorted(beyond):
        raise InvalidRequestError(
            f"'{keyword}' of a string cannot be enforced inside this model's tool calls.",
            param=f"{param}.{keyword}",
        )


def string_part(part: Any, root: JsonObject, references: int = 8) -> JsonObject | None:
    """Return the schema of the strings that ``part`` of ``root`` allows, among other values, if
    bare text can follow it; None if not, or if it allows no string."""
    if not isinstance(part, dict) or references < 0 or _BEYOND_PARTS & part.keys():
        return None
    if "$ref" in part:
        found = resolve(str(part["$ref"]), root)
        alone = not (_OF_TEXT | _CHOICES) & part.keys()
        return string_part(found, root, references - 1) if alone else None
    choices = _CHOICES & part.keys()
    if choices:
        options = part[min(choices)]
        if len(choices) > 1 or _OF_TEXT & part.keys() or not isinstance(options, list):
            return None
        types = (schema_types(option, root) for option in options)
        texts = [
            option
            for option, kinds in zip(options, types, strict=True)
            if not kinds or "string" in kinds
        ]
        return string_part(texts[0], root, references - 1) if len(texts) == 1 else None
    kinds = schema_types(part, root)
    if kinds and "string" not in kinds:
        return None
    regex = part.get("pattern")
    if isinstance(regex, str) and full_match_regex(regex) is None:
        return None
    return {**{key: part[key] for key in _OF_TEXT & part.keys()}, "type": "string"}


def text_terminal(schema: JsonObject, close: str, *, never_first: str = "") -> str | None:
    """Return a terminal for a string that is written as bare text; None if its schema does not
    restrict it. ``close``: the text that ends the string and cannot occur in it; ``never_first``: a
    text it cannot begin with. Options that break these rules are left out; a terminal without
    options matches nothing."""
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(options, list):
        texts = [
            option
            for option in options
            if isinstance(option, str)
            and not (close and close in option)
            and not (never_first and option.startswith(never_first))
        ]
        return " | ".join(map(literal, texts)) or _NOTHING
    shapes: list[str] = []
    if isinstance(regex := schema.get("pattern"), str):
        whole = full_match_regex(regex)
        if whole is not None:
            shapes.append(pattern(whole))
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) or isinstance(most, int):
        bounds = f"{{{least or 0},{most if isinstance(most, int) else ''}}}"
        shapes.append(f"/(?s:.){bounds}/")
    if not shapes:
        return None
    return " & ".join([*shapes, f"~/(?s:.*){quoted(close)}(?s:.*)/"])


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
