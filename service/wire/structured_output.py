"""The requested form of an answer: ``response_format``, ``structured_outputs``, the older
``guided_*`` fields, and SGLang's and llama.cpp's names. Several may be set if they mean the same.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.constraint.request import (
    AnswerShape,
    AnyJsonObject,
    Grammar,
    JsonSchema,
    NamedTool,
    OneOf,
    Regex,
)
from service.conversation import ToolChoice
from service.errors import InvalidRequestError
from service.wire.sampling import Name, SamplingFields

_MAX_TEXT = 128 * 1024
FormText = Annotated[str, Meta(max_length=_MAX_TEXT)]
Options = Annotated[list[FormText], Meta(min_length=1, max_length=10_000)]
Schema = dict[str, Any] | bool | Annotated[str, Meta(max_length=1024 * 1024)]


class TextFormat(msgspec.Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """Any text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag="json_object", forbid_unknown_fields=True):
    """Any JSON object; with ``schema``, as in llama.cpp and others, one that matches it."""

    schema: dict[str, Any] | bool | None = None


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without ``strict``, parts of the schema that cannot be enforced are dropped and reported."""

    name: Annotated[str, Meta(max_length=512)] = ""
    description: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag="json_schema", forbid_unknown_fields=True):
    json_schema: NamedSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's extension. One kind of form, and whether JSON may have white space. ``backend`` and
    ``disable_fallback`` select an engine, of which there is only one here."""

    json: Schema | None = None
    json_object: bool | None = None
    regex: FormText | None = None
    choice: Options | None = None
    grammar: FormText | None = None
    disable_any_whitespace: bool = False
    backend: Name | None = None
    disable_fallback: bool = False


class StructuredOutputFields(SamplingFields, frozen=True, kw_only=True):
    """The fields that chat and completion requests share."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: FormText | None = None
    guided_choice: Options | None = None
    guided_grammar: FormText | None = None
    # SGLang's and llama.cpp's names.
    regex: FormText | None = None
    ebnf: FormText | None = None
    grammar: FormText | None = None
    json_schema: Schema | None = None
    # The engine that enforces a form, and its white space: neither can be chosen here.
    guided_decoding_backend: Any = None
    guided_whitespace_pattern: Any = None


def idle_fields_of_form(fields: StructuredOutputFields) -> list[str]:
    """Return the options of the form's engine that have no effect here."""
    names = ("guided_decoding_backend", "guided_whitespace_pattern")
    found = [name for name in names if getattr(fields, name) is not None]
    asked = fields.structured_outputs
    if asked is not None and asked.backend is not None:
        found.append("structured_outputs.backend")
    return found


def answer_shape(fields: StructuredOutputFields) -> AnswerShape | None:
    """Return the requested form, None if text is unconstrained.

    Raises InvalidRequestError for more than one form, or an invalid one.
    """
    shapes = [
        shape
        for shape in (
            _of_response_format(fields.response_format),
            _of_structured_outputs(fields.structured_outputs),
            *_of_fields(fields),
        )
        if shape is not None
    ]
    return only_form(shapes)


def only_form(shapes: list[AnswerShape]) -> AnswerShape | None:
    """Return the form if all fields request the same one. Raises InvalidRequestError if they
    differ."""
    for other in shapes[1:]:
        if _says(other) != _says(shapes[0]):
            raise InvalidRequestError(
                f"'{shapes[0].param}' and '{other.param}' both constrain the output; "
                "send only one.",
                param=other.param,
            )
    return shapes[0] if shapes else None


def _says(shape: AnswerShape) -> AnswerShape:
    """Return the form without its path in the request and its strictness."""
    if isinstance(shape, JsonSchema):
        return msgspec.structs.replace(shape, param="", strict=False)
    return msgspec.structs.replace(shape, param="")


def _of_response_format(asked: ResponseFormat | None) -> AnswerShape | None:
    match asked:
        case JsonObjectFormat(schema=schema) if schema is not None:
            return JsonSchema(schema=schema, param="response_format.schema")
        case JsonObjectFormat():
            return AnyJsonObject(param="response_format")
        case JsonSchemaFormat(json_schema=named):
            param = "response_format.json_schema.schema"
            if named.schema is None:
                raise InvalidRequestError(f"Missing required parameter: '{param}'.", param=param)
            return JsonSchema(schema=named.schema, param=param, strict=named.strict is True)
    return None


def _of_structured_outputs(asked: StructuredOutputs | None) -> AnswerShape | None:
    if asked is None:
        return None
    shapes = _shapes(
        {
            "structured_outputs.json": asked.json,
            "structured_outputs.regex": asked.regex,
            "structured_outputs.choice": asked.choice,
            "structured_outputs.grammar": asked.grammar,
        }
    )
    if asked.json_object:
        shapes.append(AnyJsonObject(param="structured_outputs.json_object"))
    if len(shapes) != 1:
        raise InvalidRequestError(
            "'structured_outputs' takes exactly one of json, json_object, regex, choice, grammar.",
            param="structured_outputs",
        )
    [shape] = shapes
    if isinstance(shape, JsonSchema) and asked.disable_any_whitespace:
        return msgspec.structs.replace(shape, any_whitespace=False)
    return shape


_FORM_FIELDS = (
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("regex", "ebnf", "grammar", "json_schema"),
)


def _of_fields(fields: StructuredOutputFields) -> list[AnswerShape]:
    return _shapes({name: getattr(fields, name) for name in _FORM_FIELDS})


def _shapes(given: dict[str, Any]) -> list[AnswerShape]:
    """Return the forms requested by fields; the end of a field's name determines the kind of
    form."""
    shapes: list[AnswerShape] = []
    for param, value in given.items():
        if value is None:
            continue
        if param.endswith(("json", "json_schema")):
            shapes.append(JsonSchema(schema=_schema(value, param), param=param))
        elif param.endswith("regex"):
            shapes.append(Regex(pattern=value, param=param))
        elif param.endswith("choice"):
            shapes.append(OneOf(options=tuple(value), param=param))
        else:
            shapes.append(Grammar(text=value, param=param))
    return shapes


def _schema(schema: Schema, param: str) -> dict[str, Any] | bool:
    """Return the schema, parsing it if the client sent it as JSON text."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema, type=dict[str, Any] | bool)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(
            f"'{param}' is not a JSON schema: {error}.", param=param
        ) from None


class _NamedFunction(msgspec.Struct, frozen=True):
    name: str


class _NamedChoice(msgspec.Struct, frozen=True):
    type: Literal["function"]
    function: _NamedFunction


def tool_choice(asked: Any) -> ToolChoice:
    """Parse OpenAI's ``tool_choice`` of chat requests; ``auto`` if absent. Raises
    InvalidRequestError."""
    match asked:
        case None:
            return "auto"
        case "none" | "auto" | "required":
            choice: ToolChoice = asked
            return choice
        case "any":
            return "required"
    try:
        return NamedTool(msgspec.convert(asked, _NamedChoice).function.name)
    except msgspec.ValidationError:
        raise InvalidRequestError(
            "'tool_choice' must be none, auto, required, "
            '{"type": "function", "function": {"name": "..."}} or '
            '{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [...]}}, not '
            f"{_described(asked)}.",
            param="tool_choice",
        ) from None


def _described(asked: Any) -> str:
    if isinstance(asked, dict):
        return f"an object of type {str(asked.get('type'))[:64]!r}"
    return repr(asked)[:64] if isinstance(asked, str | int | float) else type(asked).__name__
