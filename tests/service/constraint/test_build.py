"""Which answers a request leaves to the model: by shape, by tools and their choice."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.messages import Constraint
from service.constraint.build import build_constraint
from service.constraint.request import (
    AnswerShape,
    AnyJsonObject,
    ConstraintRequest,
    Grammar,
    JsonSchema,
    NamedTool,
    OneOf,
    Regex,
    ToolShape,
)
from service.errors import InvalidRequestError
from service.formats import (
    PLAIN,
    Opening,
    OutputFormat,
    ReasoningTags,
    ToolCallTags,
    named_format,
)
from tests.service.constraint.grammars import accepts, spelled, token_id

THINKING = OutputFormat(
    ReasoningTags("<think>", "</think>"), ToolCallTags("<tool_call>", "</tool_call>")
)
# Tags of which no token is made: the same grammar must do without.
BRACKETS = OutputFormat(ReasoningTags("[think]", "[/think]"), ToolCallTags("[call]", "[/call]"))
FORMATS = pytest.mark.parametrize("tags", [THINKING, BRACKETS], ids=["tokens", "text"])

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Oslo", "Rome"]}},
}
WEATHER = ToolShape(name="get_weather", parameters=CITY, strict=True, param="tools.0")
LOOSE_WEATHER = ToolShape(name="get_weather", parameters=CITY, param="tools.0")
CLOCK = ToolShape(name="get_time", param="tools.1")


def constraint(tags: OutputFormat, **fields: Any) -> Constraint | None:
    return build_constraint(ConstraintRequest(**fields), tags, token_id)


def call(tags: OutputFormat, name: str, arguments: object, close: bool = True) -> str:
    assert tags.tool_call is not None
    body = json.dumps({"name": name, "arguments": arguments})
    return f"{tags.tool_call.open}\n{body}\n{tags.tool_call.close if close else ''}"


def thought(tags: OutputFormat, text: str) -> str:
    assert tags.reasoning is not None
    return f"{tags.reasoning.open}\n{text}\n{tags.reasoning.close}\n\n"


SHAPES: list[tuple[AnswerShape, str, str]] = [
    (JsonSchema(schema=CITY, param="p"), '{"city": "Oslo"}', '{"city": "Bonn"}'),
    (JsonSchema(schema=True, param="p"), '[1, {"a": null}]', "[1,"),
    (AnyJsonObject(param="p"), '{"a": [1]}', "[1]"),
    (Regex(pattern=r"\d{2}/\d{2}", param="p"), "12/31", "12/3"),
    (OneOf(options=("yes", "no", 'may "be"\n'), param="p"), 'may "be"\n', "maybe"),
    (Grammar(text='start: "a" b+\nb: "x" | "y"\n', param="p"), "axy", "ax!"),
]


@FORMATS
@pytest.mark.parametrize(("shape", "good", "bad"), SHAPES, ids=lambda v: type(v).__name__)
def test_an_answer_has_its_shape_behind_free_reasoning(
    tags: OutputFormat, shape: AnswerShape, good: str, bad: str
) -> None:
    asked = constraint(tags, answer=shape)
    assert accepts(asked, good)
    assert accepts(asked, thought(tags, 'so: {"x" [1') + good)
    assert not accepts(asked, bad)
    assert not accepts(asked, thought(tags, good))
    assert not accepts(asked, thought(tags, "hm") + "Sure: " + good)


@FORMATS
def test_reasoning_that_the_prompt_began_is_ended_before_the_answer(tags: OutputFormat) -> None:
    asked = constraint(tags, answer=Regex(pattern="[a-z]+", param="p"), opening=Opening.REASONING)
    assert tags.reasoning is not None
    assert accepts(asked, f"let me see{tags.reasoning.close}\nyes")
    assert not accepts(asked, "yes")


def test_reasoning_ends_at_each_spelling_of_its_end() -> None:
    tags = OutputFormat(reasoning=named_format("reasoning", "granite").reasoning)
    asked = constraint(tags, answer=AnyJsonObject(param="p"), opening=Opening.REASONING)
    for close in ("Here is my response:", "Here's my response:"):
        assert accepts(asked, f"hm\n{close}\n{{}}")
        assert not accepts(asked, f"hm\n{close} more\nHere is my response:\n{{}}")


def test_reasoning_that_a_special_token_ends_cannot_spell_another_end_of_it() -> None:
    tags = OutputFormat(ReasoningTags("<think>", "</think>", other_closes=("[/THINK]",)))
    asked = constraint(tags, answer=AnyJsonObject(param="p"))
    assert accepts(asked, "<think>hm</think>{}")
    assert not accepts(asked, "<think>hm[/THINK] more</think>{}")


def test_without_reasoning_the_answer_comes_at_once() -> None:
    asked = constraint(THINKING, answer=AnyJsonObject(param="p"), reasoning=False)
    assert accepts(asked, "{}")
    assert not accepts(asked, thought(THINKING, "hm") + "{}")
    assert accepts(constraint(PLAIN, answer=AnyJsonObject(param="p")), "{}")


HARMONY = OutputFormat(channels=named_format("tool_calls", "openai").channels)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"answer": AnyJsonObject(param="p")}, "<|channel|>final<|message|>{}"),
        (
            {"tools": (CLOCK,), "tool_choice": "required"},
            "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}",
        ),
        ({"tools": (WEATHER,)}, "<|channel|>final<|message|>Hello"),
    ],
    ids=["a form", "a forced call", "strict tools"],
)
def test_without_reasoning_no_message_of_it_is_opened(fields: dict[str, Any], answer: str) -> None:
    thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    behind = constraint(HARMONY, opening=Opening.HEADER, reasoning=False, **fields)
    before = constraint(HARMONY, opening=Opening.HEADER, **fields)
    assert accepts(before, answer)
    assert accepts(before, thought + answer)
    assert accepts(behind, answer)
    assert not accepts(behind, thought + answer)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": (LOOSE_WEATHER, CLOCK)},
        {"tools": (WEATHER,), "tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"tools": (ToolShape(name="patch", custom=True, param="t"),)},
    ],
    ids=["nothing", "loose tools", "no tool may be called", "no tools", "a free custom tool"],
)
def test_a_request_without_constraints_is_not_constrained(fields: dict[str, Any]) -> None:
    assert constraint(THINKING, **fields) is None


@FORMATS
def test_strict_tools_bind_a_call_once_it_opens_and_leave_text_free(tags: OutputFormat) -> None:
    asked = constraint(tags, tools=(WEATHER, CLOCK))
    good = call(tags, "get_weather", {"city": "Rome"})
    free = call(tags, "get_time", {"zone": "UTC", "n": [1]})
    for text in ("", "Hello {there}", good, f"Well: {good} and\n{free}\nDone.", free * 3):
        assert accepts(asked, text), text
        assert accepts(asked, thought(tags, "I could call") + text), text
    for text in (
        call(tags, "get_weather", {"city": "Bonn"}),
        call(tags, "get_weather", {}),
        call(tags, "get_weather", {"city": "Rome", "unit": "C"}),
        call(tags, "unknown", {}),
        call(tags, "get_time", [1]),
        call(tags, "get_weather", {"city": "Rome"}, close=False),
    ):
        assert not accepts(asked, text), text


def test_a_tag_that_is_a_token_cannot_be_spelled_in_its_stead() -> None:
    asked = constraint(THINKING, tools=(WEATHER,))
    assert not spelled(asked, call(THINKING, "get_weather", {"city": "Bonn"}))
    assert spelled(asked, "a < b > c, </tool")


@FORMATS
def test_required_calls_come_at_once_and_any_number_of_them(tags: OutputFormat) -> None:
    asked = constraint(tags, tools=(WEATHER, CLOCK), tool_choice="required")
    rome, now = call(tags, "get_weather", {"city": "Rome"}), call(tags, "get_time", {})
    for text in (rome, now, rome + "\n" + now + "\n" + rome, thought(tags, "hm") + rome):
        assert accepts(asked, text), text
    for text in ("", "Hello", "Hello " + rome, rome + " bye", thought(tags, "hm")):
        assert not accepts(asked, text), text


@FORMATS
def test_a_named_tool_is_called_once_and_no_other(tags: OutputFormat) -> None:
    asked = constraint(tags, tools=(WEATHER, CLOCK), tool_choice=NamedTool("get_time"))
    now = call(tags, "get_time", {"zone": "UTC"})
    assert accepts(asked, now)
    assert accepts(asked, thought(tags, "hm") + now)
    assert not accepts(asked, now + now)
    assert not accepts(asked, call(tags, "get_weather", {"city": "Rome"}))


def test_a_forced_call_follows_its_schema_also_where_it_is_not_strict() -> None:
    asked = constraint(THINKING, tools=(LOOSE_WEATHER,), tool_choice="required")
    assert accepts(asked, call(THINKING, "get_weather", {"city": "Rome"}))
    assert not accepts(asked, call(THINKING, "get_weather", {"city": "Bonn"}))


def test_a_schema_that_is_not_strict_may_ask_for_what_cannot_be_enforced() -> None:
    schema = {**CITY, "not": {"required": ["x"]}}
    loose = ToolShape(name="get_weather", parameters=schema, param="tools.0.parameters")
    asked = constraint(THINKING, tools=(loose,), tool_choice="required")
    assert accepts(asked, call(THINKING, "get_weather", {"city": "Rome"}))
    strict = ToolShape(
        name="get_weather", parameters=schema, strict=True, param="tools.0.parameters"
    )
    with pytest.raises(InvalidRequestError, match="'not'") as refused:
        constraint(THINKING, tools=(strict,))
    assert refused.value.param == "tools.0.parameters.not"


@FORMATS
@pytest.mark.parametrize("strict", [WEATHER, LOOSE_WEATHER], ids=["strict", "loose"])
def test_without_parallel_calls_there_is_one_at_most(tags: OutputFormat, strict: ToolShape) -> None:
    rome = call(tags, "get_weather", {"city": "Rome"})
    may = constraint(tags, tools=(strict,), parallel_tool_calls=False)
    assert accepts(may, "Hello")
    assert accepts(may, rome)
    assert accepts(may, "Let me look. " + rome + "\n")
    assert not accepts(may, rome + rome)
    must = constraint(tags, tools=(strict,), parallel_tool_calls=False, tool_choice="required")
    assert accepts(must, rome)
    assert not accepts(must, rome + rome)


@FORMATS
def test_an_answer_s_shape_leaves_calls_possible(tags: OutputFormat) -> None:
    asked = constraint(tags, answer=JsonSchema(schema=CITY, param="p"), tools=(WEATHER,))
    rome = call(tags, "get_weather", {"city": "Rome"})
    for text in ('{"city": "Rome"}', rome, rome + rome, thought(tags, "hm") + rome):
        assert accepts(asked, text), text
    for text in ("Hello", rome + '{"city": "Rome"}', call(tags, "get_weather", {"city": "B"})):
        assert not accepts(asked, text), text


def test_reasoning_that_the_prompt_began_may_be_cut_where_calls_are_optional() -> None:
    asked = constraint(THINKING, tools=(WEATHER,), opening=Opening.REASONING)
    rome = call(THINKING, "get_weather", {"city": "Rome"})
    for text in (
        "hm",
        "hm</think>\nHello",
        f"hm</think>{rome}",
        f"hm</think>a<think>b</think>{rome}",
    ):
        assert accepts(asked, text), text
    assert not accepts(asked, "hm</think>" + call(THINKING, "get_weather", {"city": "Bonn"}))


def test_a_custom_tool_s_text_follows_its_regex() -> None:
    tool = ToolShape(
        name="run", custom=True, input=Regex(pattern=r'say "[a-z]+"\n?', param="t"), param="t"
    )
    asked = constraint(THINKING, tools=(tool, CLOCK))
    assert accepts(asked, call(THINKING, "run", {"input": 'say "hi"\n'}))
    assert not accepts(asked, call(THINKING, "run", {"input": "say hi"}))
    assert accepts(asked, call(THINKING, "get_time", {}))


def test_a_custom_tool_s_text_follows_its_grammar() -> None:
    lark = 'start: "*** Begin" LF line+ "*** End"\nline: "+" /(.*)/ LF\n%import common.LF\n'
    tool = ToolShape(name="patch", custom=True, input=Grammar(text=lark, param="g"), param="t")
    asked = constraint(THINKING, tools=(tool, WEATHER))
    patch = '*** Begin\n+print("hi\\n")\n+\n*** End'
    assert accepts(asked, "Look: " + call(THINKING, "patch", {"input": patch}))
    assert accepts(asked, call(THINKING, "get_weather", {"city": "Rome"}))
    assert not accepts(asked, call(THINKING, "patch", {"input": patch + "\n"}))
    assert not accepts(asked, call(THINKING, "patch", {"input": "+x\n"}))
    recursive = msgspec.structs.replace(tool, input=Grammar(text='start: "(" start ")"', param="g"))
    with pytest.raises(InvalidRequestError, match="refers to itself") as refused:
        constraint(THINKING, tools=(recursive,))
    assert refused.value.param == "g"


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"tool_choice": "required"}, "tool_choice", "no 'tools'"),
        ({"tools": (CLOCK,), "tool_choice": NamedTool("x")}, "tool_choice", "'x'"),
        ({"answer": OneOf(options=(), param="c")}, "c", "at least one"),
        ({"answer": OneOf(options=("a",) * 20_000, param="c")}, "c", "may be at most"),
        ({"answer": Regex(pattern="a" * 200_000, param="r")}, "r", "may have at most"),
        ({"answer": Grammar(text="a" * 200_000, param="g")}, "g", "may have at most"),
        (
            {"answer": JsonSchema(schema={"uniqueItems": True}, param="s", strict=True)},
            "s.uniqueItems",
            "uniqueItems",
        ),
    ],
)
def test_unsupported_fields_are_refused_by_name(
    fields: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said) as refused:
        constraint(THINKING, **fields)
    assert refused.value.param == param


def test_a_model_without_tool_calls_cannot_be_made_to_call() -> None:
    with pytest.raises(InvalidRequestError, match="no tool calls"):
        constraint(PLAIN, tools=(WEATHER,), tool_choice="required")
    assert constraint(PLAIN, tools=(WEATHER,)) is None


def test_grammars_of_clients_may_be_less_ambiguous_than_ours() -> None:
    ours = constraint(THINKING, answer=AnyJsonObject(param="p"))
    theirs = constraint(THINKING, answer=Grammar(text='start: "a"', param="p"))
    assert ours is not None
    assert theirs is not None
    assert theirs.row_items < ours.row_items


JSON_CALL = '{{"name": "get_weather", "parameters": {}}}'.format
PYTHON_CALL = "[get_weather({})]".format


@pytest.mark.parametrize(
    ("name", "opening", "good", "bad"),
    [
        ("llama3_json", "<|python_tag|>", JSON_CALL('{"city": "Oslo"}'), JSON_CALL('{"evil": 1}')),
        ("xlam", "", '[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', "[1]"),
        (
            "llama4_pythonic",
            "<|python_start|>",
            PYTHON_CALL('city="Oslo"'),
            PYTHON_CALL("evil=1"),
        ),
    ],
)
def test_a_call_without_its_tag_is_held_where_the_family_writes_it_so(
    name: str, opening: str, good: str, bad: str
) -> None:
    calls = named_format("tool_calls", name).calls
    assert calls is not None
    form = OutputFormat(tool_call=calls)
    schema = {**CITY, "properties": {"city": {"enum": ["Oslo", "Rome"]}}}
    tool = msgspec.structs.replace(WEATHER, parameters=schema)
    for many in (True, False):
        made = constraint(form, tools=(tool,), parallel_tool_calls=many)
        for begun in ("", "\n", *([opening, f"Sure. {opening}"] if opening else [])):
            close = calls.close if begun.endswith(opening or "-") else ""
            assert accepts(made, f"{begun}{good}{close}"), begun
            assert not accepts(made, f"{begun}{bad}{close}"), begun
        assert accepts(made, f"{good}\n{good}") == (many and not calls.several)
        assert accepts(made, f"{good}; {good}") == (many and name == "llama3_json")
        assert not accepts(made, f"{good}; {bad}")
        assert not accepts(made, f"{good} {opening}{bad}")
        for text in ("", " ", "Hello.", f"As in {bad}."):
            assert accepts(made, text), text
