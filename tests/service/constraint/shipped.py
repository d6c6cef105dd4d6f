"""Constraints of every shipped format, random texts that they allow, and the calls in those."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest

from engine.constraint.grammar import compile_grammar
from engine.messages import Constraint
from service.constraint.build import build_constraint
from service.constraint.request import ConstraintRequest, ToolShape
from service.formats import Opening, OutputFormat, ShippedFormat, shipped_formats
from tests.service.constraint.grammars import token_id, tokenizer, tokens
from tests.service.output.parsing import parse, summary

SHIPPED = shipped_formats("tool_calls")


FORMATS = pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.names[0])


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Oslo", "Rio de Janeiro", 'the "old" <town>']},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "detail": {"type": "boolean"},
        "where": {
            "type": "object",
            "properties": {
                "lat": {"type": "number", "minimum": -90, "maximum": 90},
                "tags": {"$ref": "#/$defs/tags"},
            },
            "required": ["tags"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "where"],
    "additionalProperties": False,
    "$defs": {"tags": {"type": "array", "items": {"enum": ["a", "b c"]}, "maxItems": 2}},
}


NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "code": {"type": "string", "pattern": "^[A-Z]{3}$"}},
    "required": ["text"],
    "additionalProperties": False,
}


EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


SCHEMAS = {"get_weather": WEATHER, "note": NOTE, "ping": EMPTY}


TOOLS = tuple(
    ToolShape(name=name, parameters=schema, strict=True, param=f"tools.{name}")
    for name, schema in SCHEMAS.items()
)


def form(shipped: ShippedFormat) -> OutputFormat:
    return OutputFormat(None, shipped.calls, shipped.channels, shipped.ignored)


def opening(shipped: ShippedFormat) -> Opening:
    return Opening.HEADER if shipped.channels else Opening.TEXT


def constraint(shipped: ShippedFormat, **fields: Any) -> Constraint:
    request = ConstraintRequest(tools=TOOLS, opening=opening(shipped), **fields)
    made = build_constraint(request, form(shipped), token_id)
    assert made is not None
    return made


def walk(asked: Constraint, seed: int, limit: int = 1500) -> str | None:
    """A random text of the grammar; None if it did not end in time. Ends it where it may."""
    matcher = compile_grammar(asked, tokens())
    rng = random.Random(seed)
    end = tokenizer().token_to_id("<|im_end|>")
    out: list[int] = []
    for _ in range(limit):
        if matcher.is_stopped() or (matcher.is_accepting() and rng.random() < 0.3):
            return tokenizer().decode(out, skip_special_tokens=False)
        bias = matcher.compute_logit_bias()
        allowed = [token for token in range(len(bias)) if bias[token] and token != end]
        if not allowed:
            assert matcher.is_accepting()
            return tokenizer().decode(out, skip_special_tokens=False)
        # Free text ends only if its ends are liked.
        closing = [token for token in allowed if _text(token)[:1] in _CLOSING]
        token = rng.choice(closing if closing and rng.random() < 0.6 else allowed)
        assert matcher.try_consume_tokens([token]) == 1, matcher.get_error()
        out.append(token)
    return None


_CLOSING = tuple("'\">]})|/<e\n")


@functools.cache
def _text(token: int) -> str:
    return str(tokenizer().decode([token], skip_special_tokens=False))


def calls_in(text: str, shipped: ShippedFormat) -> list[tuple[str, Any]]:
    """The complete calls of a text; there must be nothing else in it but reasoning."""
    calls: list[tuple[str, Any]] = []
    name, arguments = "", ""
    for kind, *values in summary(
        parse([text], form(shipped), TOOLS_BY_NAME, opening=opening(shipped))
    ):
        match kind:
            case "call":
                name, arguments = values[1], ""
            case "arguments":
                arguments += values[0]
            case "end":
                calls.append((name, json.loads(arguments)))
            case "reasoning":
                pass
            case _:
                pytest.fail(f"{kind}: {values} in {text!r}")
    return calls


TOOLS_BY_NAME = {tool.name: tool.parameters for tool in TOOLS}
