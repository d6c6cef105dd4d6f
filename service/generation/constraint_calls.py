"""Tool calls as grammars, from the same description by which they are read."""

from __future__ import annotations

from typing import Any

from engine.messages import MAX_GRAMMAR_CHARS
from service.errors import InvalidRequestError
from service.generation.constraint import Grammar, Regex, ToolShape
from service.generation.constraint_flat import CannotFlattenError, flat_regex
from service.generation.constraint_lark import SPACE, Rules, TokenIds, either, tag
from service.generation.constraint_schema import check_schema, nested, schema_grammar
from service.generation.formats import ToolCallTags

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


def call_term(
    rules: Rules,
    tags: ToolCallTags,
    tools: tuple[ToolShape, ...],
    token_ids: TokenIds,
    *,
    exact: bool,
    opened: bool = False,
) -> str:
    """One call of one of ``tools``; ``opened``: behind its opening tag. ``exact``: arguments
    follow each tool's schema as far as grammars can tell, not only those of strict tools.

    Raises InvalidRequestError for a strict tool whose arguments cannot be told.
    """
    space = rules.add(SPACE, terminal=True)
    bodies: list[str] = []
    for tool in tools:
        bodies.append(_body(tags, tool, exact=exact))
        if sum(map(len, bodies)) > MAX_GRAMMAR_CHARS:
            raise InvalidRequestError(
                "The tools' schemas are too large together to constrain calls by them.",
                param=tool.param,
            )
    body = rules.add(either(bodies))
    inside = f"{space} {body} {space} {tag(tags.close, token_ids).term}"
    return rules.add(inside if opened else f"{tag(tags.open, token_ids).term} {inside}")


def _body(tags: ToolCallTags, tool: ToolShape, *, exact: bool) -> str:
    key = tags.arguments_keys[0]
    arguments = _arguments(tool, exact=exact)
    schema = {
        "type": "object",
        "properties": {
            tags.name_key: {"const": tool.name},
            key: nested(arguments, f"/properties/{_pointer(key)}"),
        },
        "required": [tags.name_key, key],
        "additionalProperties": False,
    }
    return schema_grammar(schema, lenient=not _is_binding(tool))


def _is_binding(tool: ToolShape) -> bool:
    return tool.strict or tool.custom


def _arguments(tool: ToolShape, *, exact: bool) -> dict[str, Any]:
    if tool.custom:
        return _custom_arguments(tool)
    if tool.parameters is None or not (tool.strict or exact):
        return _ANY_OBJECT
    check_schema(tool.parameters, tool.param, every_keyword=tool.strict)
    # A schema that allows more than objects still has to give arguments.
    return tool.parameters if "type" in tool.parameters else {**tool.parameters, "type": "object"}


def _custom_arguments(tool: ToolShape) -> dict[str, Any]:
    """A custom tool's text travels as one string."""
    text: dict[str, Any] = {"type": "string"}
    match tool.input:
        case Regex(pattern=pattern):
            text["pattern"] = f"^(?:{pattern})$"
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
            f"The grammar cannot be enforced inside this model's JSON tool calls: {error}.",
            param=param,
        ) from error


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
