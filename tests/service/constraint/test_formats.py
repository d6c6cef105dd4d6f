"""Every shipped format: what its grammar allows, its parser reads back as sound calls."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import jsonschema
import pytest

from engine.constraint.grammar import compile_grammar
from engine.messages import Constraint
from service.constraint.build import build_constraint
from service.constraint.request import AnyJsonObject, ConstraintRequest, NamedTool, ToolShape
from service.formats import Opening, OutputFormat, ShippedFormat, shipped_formats
from service.formats.format import token_like
from tests.service.constraint.grammars import (
    accepts,
    special_tokenizer,
    token_id,
    tokenizer,
    tokens,
)
from tests.service.output.parsing import parse, summary

pytestmark = pytest.mark.integration

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


@FORMATS
def test_forced_calls_are_read_back_as_calls_that_match_their_schemas(
    shipped: ShippedFormat,
) -> None:
    asked = constraint(shipped, tool_choice="required")
    ended = 0
    for seed in range(6):
        text = walk(asked, seed)
        if text is None:
            continue
        ended += 1
        calls = calls_in(text, shipped)
        assert calls, text
        for name, arguments in calls:
            jsonschema.validate(arguments, SCHEMAS[name])
    assert ended


@FORMATS
def test_a_named_tool_is_called_once(shipped: ShippedFormat) -> None:
    asked = constraint(shipped, tool_choice=NamedTool("ping"))
    text = next(filter(None, (walk(asked, seed) for seed in range(8))))
    assert calls_in(text, shipped) == [("ping", {})]


CHANNELS = pytest.mark.parametrize(
    "shipped", [one for one in SHIPPED if one.channels], ids=lambda shipped: shipped.names[0]
)


@CHANNELS
def test_a_message_that_the_prompt_began_is_ended_before_what_comes_next(
    shipped: ShippedFormat,
) -> None:
    channels = shipped.channels
    assert channels is not None
    end = "".join(channels.between)
    said = f"{channels.text_headers[0]}Hello"
    ping = (ToolShape(name="ping", parameters=EMPTY, strict=True, param="t"),)

    def asked(at: Opening, tools: tuple[ToolShape, ...] = ping, **fields: Any) -> Constraint | None:
        request = ConstraintRequest(tools=tools, opening=at, **fields)
        return build_constraint(request, form(shipped), token_id)

    forced = next(filter(None, (walk(constraint_of_ping(shipped), seed) for seed in range(8))))
    for at in (Opening.TEXT, Opening.REASONING):
        free = asked(at)
        assert accepts(free, " and so on")
        assert accepts(free, f" and so on{end}{said}")
        assert accepts(free, f" and so on{end}{forced}")
        required = asked(at, tool_choice="required")
        assert accepts(required, f" and so on{end}{forced}")
        assert not accepts(required, " and so on")
        assert not accepts(required, forced)
    answer = AnyJsonObject(param="p")
    assert accepts(asked(Opening.TEXT, (), answer=answer), "{}")
    behind = asked(Opening.REASONING, (), answer=answer)
    assert accepts(behind, f" and so on{end}{channels.text_headers[0]}{{}}")
    assert not accepts(behind, "{}")


def constraint_of_ping(shipped: ShippedFormat) -> Constraint:
    return constraint(shipped, tool_choice=NamedTool("ping"), reasoning=False)


@CHANNELS
def test_no_message_of_reasoning_opens_behind_a_prompt_that_closed_it(
    shipped: ShippedFormat,
) -> None:
    channels = shipped.channels
    assert channels is not None
    if not channels.reasoning_header:
        return
    thought = f"{channels.reasoning_header}so{''.join(channels.between)}"
    said = f"{channels.text_headers[0]}Hello"
    assert accepts(constraint(shipped), thought + said)
    assert accepts(constraint(shipped, reasoning=False), said)
    assert not accepts(constraint(shipped, reasoning=False), thought + said)
    forced = walk(constraint_of_ping(shipped), 0)
    assert forced is not None
    one = NamedTool("ping")
    assert accepts(constraint(shipped, tool_choice=one), thought + forced)
    assert not accepts(constraint_of_ping(shipped), thought + forced)


@FORMATS
def test_the_formats_own_examples_are_texts_of_its_grammar(shipped: ShippedFormat) -> None:
    """Tools that are not strict leave their arguments free, but calls must be calls."""
    tools = (
        ToolShape(name="get_weather", param="t"),
        ToolShape(name="set_alarm", param="t"),
        ToolShape(name="ping", parameters=EMPTY, strict=True, param="t"),
    )
    request = ConstraintRequest(tools=tools, opening=opening(shipped))
    asked = build_constraint(request, form(shipped), token_id)
    for example in shipped.examples:
        if example.lenient or not example.calls:
            continue
        # Harmony's models make one call at a time.
        text = example.text.partition("<|call|>")[0]
        assert accepts(asked, text), text


def test_the_same_where_the_delimiters_hold_special_tokens() -> None:
    """Each tag, and each part of one that looks like a token, is a special token."""
    tags = {part for shipped in SHIPPED for tag in form(shipped).tags for part in token_like(tag)}
    made, compiled_with = special_tokenizer(tuple(sorted(tags)))
    tools = (
        *(ToolShape(name=name, param="t") for name in ("get_weather", "set_alarm", "ping")),
        ToolShape(name="note", parameters=NOTE, strict=True, param="t"),
    )
    for shipped in SHIPPED:
        request = ConstraintRequest(tools=tools, opening=opening(shipped))
        asked = build_constraint(request, form(shipped), made.token_to_id)
        assert asked is not None
        for example in shipped.examples:
            if example.lenient or not example.calls:
                continue
            ids = made.encode(example.text.partition("<|call|>")[0], add_special_tokens=False).ids
            matcher = compile_grammar(asked, compiled_with)
            assert matcher.try_consume_tokens(ids) == len(ids), (shipped.names, example.text)
            assert matcher.is_accepting()


@pytest.mark.parametrize("text", ["</think>", "<tool_call>", "a <|im_end|>"])
def test_a_value_that_reads_like_a_special_token_is_written_as_text(text: str) -> None:
    [hermes] = [shipped for shipped in SHIPPED if shipped.names[0] == "hermes"]
    schema = {"type": "object", "properties": {"text": {"const": text}}, "required": ["text"]}
    tool = ToolShape(name="note", parameters=schema, strict=True, param="tools.note")
    request = ConstraintRequest(tools=(tool,), tool_choice=NamedTool("note"), opening=Opening.TEXT)
    asked = build_constraint(request, form(hermes), token_id)
    assert asked is not None
    written = walk(asked, seed=0)
    assert written is not None
    assert f'"{text}"' in written


@FORMATS
def test_a_forced_value_that_would_end_itself_is_never_written_and_read_as_another(
    shipped: ShippedFormat,
) -> None:
    """Where values are bare text, one that holds its closing tag cannot be told from its end."""
    body = None if shipped.calls is None else shipped.calls.body
    closers = {
        getattr(body, name, "") for name in ("value_close", "mark", "quote", "call_close")
    } | {"<![CDATA[x"}
    texts = [*sorted(filter(None, closers)), "fine"]
    schema = {"type": "object", "properties": {"text": {"enum": texts}}, "required": ["text"]}
    tool = ToolShape(name="note", parameters=schema, strict=True, param="tools.note")
    request = ConstraintRequest(
        tools=(tool,), tool_choice=NamedTool("note"), opening=opening(shipped)
    )
    asked = build_constraint(request, form(shipped), token_id)
    assert asked is not None
    for seed in range(8):
        written = walk(asked, seed)
        if written is None:
            continue
        found = summary(parse([written], form(shipped), {"note": schema}, opening=opening(shipped)))
        arguments = [entry[1] for entry in found if entry[0] == "arguments"]
        assert len(arguments) == 1, (written, found)
        value = json.loads(arguments[0])["text"]
        assert value in texts, (written, value)
        assert value == "fine" or json.dumps(value) in written or value in written
