"""What a request asks of the form of its answer, whatever API asked.

A route says it with one ``ConstraintRequest``:

- ``answer``: the form of the text that the client reads (``response_format``, ``text.format``,
  ``output_config.format``, ``structured_outputs``, ``guided_*``);
- ``tools``, ``tool_choice``, ``parallel_tool_calls``: which calls may, must and must not be made;
- ``opening``: what the prompt's end leaves open, such as a reasoning block; ``reasoning``: whether
  one may be opened. Reasoning itself always stays free: a constraint holds for what comes after it.

Every part carries ``param``, the request's own name of the field it came from
(``response_format.json_schema.schema``, ``tools.0.function.parameters``), which errors name.

    request = ConstraintRequest(answer=JsonSchema({"type": "object"}, param="response_format"))
    constraint = await constraint_of(
        request, checkpoint.output_format, checkpoint.tokenizer.token_id, trial
    )
    params = msgspec.structs.replace(params, constraint=constraint)

The routes of chat-like APIs need not do that themselves: ``service.serving.prepare`` makes the
request of the conversation's tools and of the ``answer`` (and ``tools``) given to
``start_conversation``. ``constraint_of`` (in ``constraint_grammar``) tries the grammar within a
bound of time and raises InvalidRequestError for one that will not do. It gives None when nothing
has to be constrained, so it may always be called.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from service.conversation import NamedTool, ToolChoice
from service.formats import Opening

__all__ = [
    "AnswerShape",
    "Choice",
    "ConstraintRequest",
    "Grammar",
    "JsonObject",
    "JsonSchema",
    "NamedTool",
    "Regex",
    "ToolChoice",
    "ToolShape",
]


class JsonSchema(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One JSON value that matches ``schema`` (an object, or true for any value). With ``strict``,
    a keyword that cannot be enforced is an error; without it, left out and reported."""

    schema: dict[str, Any] | bool
    param: str
    strict: bool = False
    any_whitespace: bool = True  # False: none between the JSON's tokens


class JsonObject(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Any JSON object."""

    param: str


class Regex(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A text that the whole pattern matches, in the syntax of Rust's regex crate."""

    pattern: str
    param: str


class Choice(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Exactly one of these texts."""

    options: tuple[str, ...]
    param: str


class Grammar(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A text of a context-free grammar: Lark's notation, or llama.cpp's GBNF; ``auto`` tells them
    apart by GBNF's ``::=``."""

    text: str
    param: str
    syntax: Literal["auto", "lark", "gbnf"] = "auto"


AnswerShape = JsonSchema | JsonObject | Regex | Choice | Grammar


class ToolShape(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that may be called. ``parameters`` is its JSON schema (None: any object), binding
    where ``strict`` is set. ``input`` is the form of a custom tool's plain text (always binding);
    ``custom`` marks such a tool also when its text is free."""

    name: str
    param: str
    parameters: dict[str, Any] | None = None
    strict: bool = False
    custom: bool = False
    input: Regex | Grammar | None = None
    input_key: str = "input"  # the argument that holds a custom tool's text


class ConstraintRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All that one request asks. With ``answer`` and tools that may be called, the model answers
    in that form or calls tools. ``may_free``: the grammar of a custom tool's text is left out where
    it cannot be enforced inside the model's calls."""

    answer: AnswerShape | None = None
    tools: tuple[ToolShape, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    opening: Opening = Opening.TEXT
    may_free: bool = False
    # The model may reason before it answers, if its format has reasoning: nobody switched it off,
    # and the prompt does not end behind it.
    reasoning: bool = True
