"""Every shipped format: what its grammar allows, its parser reads back as sound calls."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from engine.constraint.grammar import compile_grammar
from engine.messages import Constraint
from service.constraint.build import build_constraint
from service.constraint.calls import opening_of_calls, other_openings_of_calls
from service.constraint.request import ConstraintRequest, NamedTool, ToolShape
from service.errors import InvalidRequestError
from service.formats import (
    ElementsBody,
    JsonBody,
    Opening,
    ParametersBody,
    PythonBody,
    RelaxedBody,
    ShippedFormat,
)
from service.formats.format import token_like
from service.output.calls.keys import can_carry
from service.output.calls.tool_schemas import reduced
from tests.service.constraint.grammars import accepts, special_tokenizer, token_id
from tests.service.constraint.shipped import (
    EMPTY,
    FORMATS,
    NOTE,
    SCHEMAS,
    SHIPPED,
    calls_in,
    constraint,
    form,
    opening,
    walk,
)
from tests.service.output.parsing import parse, summary

pytestmark = pytest.mark.integration


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
    """If values are bare text, a closing tag inside one would end it."""
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


VALUES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "level": {"enum": [1, 2, None]},
        "nothing": {"const": None},
        "fixed": {"const": {"a": "b"}},
        "mixed": {"anyOf": [{"enum": [True, 3]}, {"enum": [[1], None]}]},
    },
    "required": ["level", "nothing", "fixed", "mixed"],
    "additionalProperties": False,
}


@FORMATS
def test_listed_values_without_strings_never_lead_to_a_dead_end(shipped: ShippedFormat) -> None:
    tool = ToolShape(name="note", parameters=VALUES, strict=True, param="t")
    request = ConstraintRequest(
        tools=(tool,), tool_choice=NamedTool("note"), opening=opening(shipped)
    )
    asked = build_constraint(request, form(shipped), token_id)
    assert asked is not None
    tools_by_name = reduced({"note": VALUES})
    for seed in range(4):
        text = walk(asked, seed)  # fails at a dead end
        if text is not None:
            found = parse([text], form(shipped), tools_by_name, opening=opening(shipped))
            (arguments,) = (entry[1] for entry in summary(found) if entry[0] == "arguments")
            jsonschema.validate(json.loads(arguments), VALUES)


BARE = [
    shipped
    for shipped in SHIPPED
    if shipped.calls is not None
    and isinstance(shipped.calls.body, ElementsBody | ParametersBody | RelaxedBody)
]


def weather_schema(city: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"city": city, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }


def weather_calls(shipped: ShippedFormat, schema: dict[str, Any]) -> Constraint | None:
    """Return what holds calls to a strict tool with this schema, and to the examples' others."""
    tools = (
        ToolShape(name="get_weather", parameters=schema, strict=True, param="t"),
        *(ToolShape(name=name, param="t") for name in ("set_alarm", "ping")),
    )
    request = ConstraintRequest(tools=tools, opening=opening(shipped))
    return build_constraint(request, form(shipped), token_id)


@pytest.mark.parametrize("shipped", BARE, ids=lambda shipped: shipped.names[0])
@pytest.mark.parametrize(
    "city",
    [
        {"minLength": 3, "maxLength": 5},
        {"pattern": "^O"},
        {"pattern": "o$|^R"},
        {"pattern": "sl"},
        {"enum": ["Oslo", "Oslos"]},
    ],
    ids=str,
)
def test_a_string_without_quotes_follows_its_schema(
    shipped: ShippedFormat, city: dict[str, Any]
) -> None:
    """The format's own example, with other values in it. The oracle is the schema itself."""
    asked = weather_calls(shipped, weather_schema({"type": "string", **city}))
    for example in shipped.examples:
        if example.lenient or not example.calls or "Oslo" not in example.text:
            continue
        for value in ("Oslo", "Rom", "Bonn-Oslo"):
            sound = jsonschema.Draft202012Validator(city).is_valid(value)
            text = example.text.partition("<|call|>")[0].replace("Oslo", value)
            assert accepts(asked, text) == sound, text


@FORMATS
def test_a_pattern_may_have_anchors_inside_groups(shipped: ShippedFormat) -> None:
    """In formats whose strings have quotes and in those whose strings have none."""
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": "(^a|(?:^b))[0-9]$"}},
        "required": ["code"],
        "additionalProperties": False,
    }
    tools = (ToolShape(name="ping", parameters=schema, strict=True, param="t"),)
    request = ConstraintRequest(
        tools=tools, tool_choice=NamedTool("ping"), opening=opening(shipped)
    )
    asked = build_constraint(request, form(shipped), token_id)
    assert asked is not None
    text = next(filter(None, (walk(asked, seed) for seed in range(8))))
    ((_, arguments),) = calls_in(text, shipped)
    jsonschema.validate(arguments, schema)


@pytest.mark.parametrize("shipped", BARE, ids=lambda shipped: shipped.names[0])
def test_an_argument_of_which_no_value_can_be_written_is_refused_if_it_binds(
    shipped: ShippedFormat,
) -> None:
    assert shipped.calls is not None
    body = shipped.calls.body
    ends = {getattr(body, name, "") for name in ("value_close", "mark", "quote")} - {""}
    schema = {"properties": {"text": {"type": "string", "enum": sorted(ends)}}}
    for strict in (False, True):
        tool = ToolShape(name="note", parameters=schema, strict=strict, param="t")
        request = ConstraintRequest(tools=(tool,), tool_choice="required", opening=opening(shipped))
        if strict:
            with pytest.raises(InvalidRequestError, match="None of the allowed values") as refused:
                build_constraint(request, form(shipped), token_id)
            assert refused.value.param == "t.properties.text"
        else:
            assert build_constraint(request, form(shipped), token_id) is not None


PARAMETERS = [
    shipped
    for shipped in SHIPPED
    if shipped.calls is not None and isinstance(shipped.calls.body, ParametersBody)
]
MARKED = [
    shipped
    for shipped in PARAMETERS
    if isinstance(body := getattr(shipped.calls, "body", None), ParametersBody) and body.attributes
]


@pytest.mark.parametrize("shipped", MARKED, ids=lambda shipped: shipped.names[0])
@pytest.mark.parametrize(
    "city",
    [
        {"type": ["string", "null"]},
        {"anyOf": [{"enum": ["Oslo", "Rome"]}, {"type": "null"}]},
        {"enum": ["Oslo", 5, None]},
        {},
    ],
    ids=str,
)
def test_a_string_among_other_values_is_written_as_text_or_as_json_and_read_as_itself(
    shipped: ShippedFormat, city: dict[str, Any]
) -> None:
    schema = weather_schema(city)
    asked = weather_calls(shipped, schema)
    as_text, as_json = _spellings(shipped)
    read = 0
    for example in shipped.examples:
        if example.lenient or f"{as_text}Oslo" not in example.text:
            continue
        for written, value in (
            (f"{as_text}Oslo", "Oslo"),
            (f'{as_json}"Oslo"', "Oslo"),
            (f"{as_json}null", None),
        ):
            text = example.text.replace(f"{as_text}Oslo", written)
            assert accepts(asked, text), text
            tools_by_name = {"get_weather": schema, "set_alarm": None, "ping": None}
            found = summary(parse([text], form(shipped), tools_by_name))
            whole = [json.loads(entry[1]) for entry in found if entry[0] == "arguments"]
            assert any(call.get("city", "") == value for call in whole), found
            read += 1
    assert read


def _spellings(shipped: ShippedFormat) -> tuple[str, str]:
    """The attributes of text and of JSON, with the end of the tag."""
    assert shipped.calls is not None
    body = shipped.calls.body
    assert isinstance(body, ParametersBody)
    if body.attributes == "string":
        return f' string="true"{body.tag_end}', f' string="false"{body.tag_end}'
    return f' type="string"{body.tag_end}', f' type="null"{body.tag_end}'


@pytest.mark.parametrize("shipped", BARE, ids=lambda shipped: shipped.names[0])
@pytest.mark.parametrize(
    "unit",
    [
        {"enum": ["celsius", None]},
        {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}]},
        {"type": ["string", "null"], "pattern": "^[a-z]{2}$"},
    ],
    ids=str,
)
def test_a_string_that_may_be_null_is_read_back_without_quotes(
    shipped: ShippedFormat, unit: dict[str, Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {"unit": unit},
        "required": ["unit"],
        "additionalProperties": False,
        "$defs": {"unit": {"type": "string", "enum": ["celsius", "kelvin"]}},
    }
    tool = ToolShape(name="note", parameters=schema, strict=True, param="t")
    request = ConstraintRequest(
        tools=(tool,), tool_choice=NamedTool("note"), opening=opening(shipped)
    )
    asked = build_constraint(request, form(shipped), token_id)
    assert asked is not None
    read = 0
    for seed in range(3):
        text = walk(asked, seed)
        if text is None:
            continue
        found = summary(parse([text], form(shipped), {"note": schema}, opening=opening(shipped)))
        (arguments,) = (entry[1] for entry in found if entry[0] == "arguments")
        value = json.loads(arguments)
        jsonschema.validate(value, schema)
        assert not str(value["unit"]).startswith('"'), text
        read += 1
    assert read


@pytest.mark.parametrize("shipped", PARAMETERS, ids=lambda shipped: shipped.names[0])
def test_the_text_of_an_argument_cannot_hold_another_argument(shipped: ShippedFormat) -> None:
    """The parser ends a value where the next argument begins, even without its closing tag."""
    assert shipped.calls is not None
    body = shipped.calls.body
    assert isinstance(body, ParametersBody)
    asked = weather_calls(shipped, weather_schema({"type": "string"}))
    tag_end = f' {body.attributes}="true"{body.tag_end}' if body.attributes else ""
    for inside, fits in (
        (f"a {body.key_open}", True),
        (f"a{body.key_open}evil{body.key_end}{tag_end}{body.value_open}b", False),
        (f"a\n{body.key_open}evil{body.key_end}{tag_end}{body.value_open}b", False),
        (f"a{body.value_close}\nb", False),
    ):
        for example in shipped.examples:
            if not example.lenient and example.calls and "Oslo" in example.text:
                text = example.text.partition("<|call|>")[0].replace("Oslo", inside)
                assert accepts(asked, text) == fits, text


NAMES = (
    *("a", "a.b", "per-page", "1st", "größe", "class", "x y", "x/y", "$f", "@type", "user's"),
    *("a&b", "a[b]", "filter[name]", "a:b", "a,b", "a(b", "a=b", "a<b", "a>b", 'q"q', "&quot;"),
    *(" x", "x ", "a\nb", ")", "}", "a{b", "", "n" * 600),
)


@FORMATS
def test_an_argument_s_name_is_read_back_or_refused(shipped: ShippedFormat) -> None:
    def asked(*names: str, strict: bool) -> Constraint | None:
        tool = ToolShape(name="note", parameters=with_names(names), strict=strict, param="t")
        request = ConstraintRequest(
            tools=(tool,), tool_choice=NamedTool("note"), opening=opening(shipped)
        )
        return build_constraint(request, form(shipped), token_id)

    def with_names(names: tuple[str, ...]) -> dict[str, Any]:
        days = {"type": "integer", "minimum": 1, "maximum": 3}
        properties = {name: {"enum": ["a", "b"]} for name in names[::2]}
        return {
            "type": "object",
            "properties": properties | dict.fromkeys(names[1::2], days),
            "required": list(names),
            "additionalProperties": False,
        }

    body = JsonBody() if shipped.calls is None else shipped.calls.body
    carried = [name for name in NAMES if can_carry(body, name)]
    assert set(carried) >= {"a", "a.b", "per-page", "größe", "$f", "user's"}
    for name in sorted({*NAMES} - {*carried}):
        with pytest.raises(InvalidRequestError, match="cannot be used in this") as refused:
            asked(name, strict=True)
        assert refused.value.param == f"t.properties.{name}"
    schema = with_names(tuple(carried))
    for names, strict in ((carried, True), (NAMES, False)):
        constraint = asked(*names, strict=strict)
        assert constraint is not None
        text = next(filter(None, (walk(constraint, seed, 4000) for seed in range(4))))
        tools_by_name = reduced({"note": with_names(tuple(names))})
        found = parse([text], form(shipped), tools_by_name, opening=opening(shipped))
        (arguments,) = (entry[1] for entry in summary(found) if entry[0] == "arguments")
        if strict:
            jsonschema.validate(json.loads(arguments), schema)
        assert set(json.loads(arguments)) == set(carried), text


LISTED = [
    shipped
    for shipped in SHIPPED
    if shipped.calls is not None
    and isinstance(shipped.calls.body, ElementsBody | ParametersBody | PythonBody | RelaxedBody)
]
DAYS = {
    "type": "object",
    "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["days"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("shipped", LISTED, ids=lambda shipped: shipped.names[0])
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/definitions/Days", "definitions": {"Days": DAYS}},
        {"type": "object", "allOf": [DAYS]},
        {**DAYS, "properties": {**DAYS["properties"], "until": {"$ref": "#/properties/days"}}},
    ],
    ids=["root", "allOf", "property"],
)
def test_arguments_follow_references_at_any_place(
    shipped: ShippedFormat, schema: dict[str, Any]
) -> None:
    tool = ToolShape(name="note", parameters=schema, strict=True, param="t")
    request = ConstraintRequest(
        tools=(tool,), tool_choice=NamedTool("note"), opening=opening(shipped)
    )
    asked = build_constraint(request, form(shipped), token_id)
    assert asked is not None
    text = next(filter(None, (walk(asked, seed) for seed in range(4))))
    tools_by_name = reduced({"note": schema})
    found = summary(parse([text], form(shipped), tools_by_name, opening=opening(shipped)))
    (arguments,) = (entry[1] for entry in found if entry[0] == "arguments")
    jsonschema.validate(json.loads(arguments), schema)


@pytest.mark.parametrize("shipped", LISTED, ids=lambda shipped: shipped.names[0])
def test_a_restriction_that_a_list_of_arguments_cannot_follow_is_refused(
    shipped: ShippedFormat,
) -> None:
    schema = {**DAYS, "anyOf": [{"required": ["days"]}, {"required": ["until"]}]}
    tool = ToolShape(name="note", parameters=schema, strict=True, param="t")
    request = ConstraintRequest(tools=(tool,), tool_choice="required", opening=opening(shipped))
    with pytest.raises(InvalidRequestError, match="'anyOf' of the arguments") as refused:
        build_constraint(request, form(shipped), token_id)
    assert refused.value.param == "t.anyOf"


GOOD = {"city": "Oslo"}


def _json_call(arguments: dict[str, Any]) -> str:
    return json.dumps({"name": "get_weather", "parameters": arguments})


def _python_call(arguments: dict[str, Any]) -> str:
    return f"[get_weather({', '.join(f'{key}={json.dumps(v)}' for key, v in arguments.items())})]"


@pytest.mark.parametrize(
    ("family", "tags", "call", "two"),
    [
        ("llama3_json", ("<|python_tag|>", ""), _json_call, "{0}; {0}"),
        ("llama4_pythonic", ("<|python_start|>", "<|python_end|>"), _python_call, "{0}, {0}"),
    ],
)
def test_calls_without_tags_are_held_to_strict_schemas_too(
    family: str, tags: tuple[str, str], call: Any, two: str
) -> None:
    [shipped] = [shipped for shipped in SHIPPED if shipped.names[0] == family]
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = ToolShape(name="get_weather", parameters=schema, strict=True, param="t")

    def asked(**fields: Any) -> Constraint | None:
        request = ConstraintRequest(tools=(tool,), opening=opening(shipped), **fields)
        return build_constraint(request, form(shipped), token_id)

    several, single = asked(), asked(parallel_tool_calls=False)
    first, last = tags
    good, evil = call(GOOD), call({"evil": 1})
    both = two.format(good) if family == "llama3_json" else f"[{two.format(good[1:-1])}]"
    for text, in_several, in_single in (
        (good, True, True),
        (f"\n{first}{good}{last}", True, True),
        (f"Sure. {first}{good}{last}", True, True),
        (both, True, False),
        (f"{first}{both}{last}", True, False),
        (f"{first}{good}{last}{evil}", False, False),
        (evil, False, False),
        (f"Sure. {first}{evil}{last}", False, False),
        ("Sure, it rains [1] {x}.", True, True),
        ("", True, True),
    ):
        assert accepts(several, text) == in_several, text
        assert accepts(single, text) == in_single, text


OPENED = [
    shipped
    for shipped in SHIPPED
    if shipped.calls is not None and not shipped.channels and opening_of_calls(shipped.calls)
]


@pytest.mark.parametrize("shipped", OPENED, ids=lambda shipped: shipped.names[0])
def test_text_cannot_hold_what_the_parser_takes_for_a_call(shipped: ShippedFormat) -> None:
    """A section's inner tags, other spellings, and a call's own tag without the outer one."""
    assert shipped.calls is not None
    asked = weather_calls(shipped, weather_schema({"type": "string"}))
    assert accepts(asked, "Sure, 1 < 2.")
    for text in other_openings_of_calls(shipped.calls):
        assert not accepts(asked, f"Sure. {text} get_weather"), text


def test_what_is_too_large_is_refused_before_it_is_written() -> None:
    """38 arguments of 62 shapes each, of 620 values each."""

    def asked(values: list[str], shapes: list[dict[str, Any]]) -> Constraint:
        texts = {"allOf": [{"anyOf": shapes}, {"enum": values}]}
        properties = {f"{number}": {"$ref": "#/$defs/Z"} for number in range(38)}
        schema = {"type": "object", "properties": properties, "$defs": {"Z": texts}}
        tool = ToolShape(name="f", param="tools.0", parameters=schema, strict=True)
        [shipped] = [each for each in SHIPPED if "qwen3_coder" in each.names]
        request = ConstraintRequest(tools=(tool,), tool_choice="required")
        made = build_constraint(request, form(shipped), token_id)
        assert made is not None
        return made

    assert len(asked(["a"] * 620, [{}] * 62).grammar) < 10_000
    values = [f"v{number}" for number in range(620)]
    shapes: list[dict[str, Any]] = [{"maxLength": size} for size in range(62)]
    with pytest.raises(InvalidRequestError, match="too large in total") as refused:
        asked(values, shapes)
    assert refused.value.param == "tools.0"
