"""Outputs of model families as other servers' conformance cases write them, and the names that
those servers have for the families."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.formats import (
    Opening,
    OutputFormat,
    detect_format,
    named_format,
    opening_of,
)
from tests.service.output.parsing import cut, parse, summary

Calls = list[tuple[str, Any]]
PINGS: dict[str, dict[str, Any] | None] = {"f": None, "g": None}


def said(
    text: str,
    form: OutputFormat,
    tools: dict[str, dict[str, Any] | None] | None = PINGS,
    opening: Opening | None = None,
) -> tuple[str, str, Calls]:
    """Reasoning, text and the complete calls; the same in any cut."""
    if opening is None:
        opening = Opening.HEADER if form.channels else Opening.TEXT
    results = []
    for pieces in ([text], list(text), cut(text, [*range(0, 5000, 7)])):
        reasoning = content = name = arguments = ""
        calls: Calls = []
        events = parse(pieces, form, tools or {}, tools=tools is not None, opening=opening)
        for kind, *values in summary(events):
            match kind:
                case "text":
                    content += values[0]
                case "reasoning":
                    reasoning += values[0]
                case "call":
                    name, arguments = values[1], ""
                case "arguments":
                    arguments += values[0]
                case "end":
                    calls.append((name, json.loads(arguments)))
        results.append((reasoning, content, calls))
    assert results[0] == results[1] == results[2]
    return results[0]


def of(calls: str = "none", reasoning: str = "none") -> OutputFormat:
    return detect_format("", calls=calls, reasoning=reasoning)


M3 = "]<]minimax[>["
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "rows": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
        "to": {"$ref": "#/$defs/place"},
        "either": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]},
        "more": {"type": "object", "additionalProperties": {"type": "number"}},
        "free": {"type": "object"},
    },
    "$defs": {"place": {"type": "object", "properties": {"zip": {"type": "integer"}}}},
}


def m3(*calls: str) -> str:
    inside = "\n".join(f'{M3}<invoke name="order">{call}{M3}</invoke>' for call in calls)
    return f"{M3}<tool_call>\n{inside}\n{M3}</tool_call>"


def el(name: str, *inside: str) -> str:
    return f"{M3}<{name}>{''.join(inside)}{M3}</{name}>"


def k3(*calls: str) -> str:
    return f"<|open|>tools<|sep|>{''.join(calls)}<|close|>tools<|sep|>"


def k3_call(name: str, *arguments: tuple[str, str, str]) -> str:
    inside = "".join(
        f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
        for key, kind, value in arguments
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{inside}<|close|>call<|sep|>'


HARMONY, INKLING, MUSE = of("openai"), of("inkling"), of("muse_glimmer")
F31, F32 = of("functionary_v31"), of("functionary_v32")
K3, M3_FORMAT = of("kimi_k3", "kimi_k3"), of("minimax_m3", "minimax_m3")

CASES = [
    # inkling: headers with a name, kinds of content, several in any order
    pytest.param(
        INKLING,
        "<|content_thinking|>I should check the weather.<|end_message|><|message_model|>"
        "<|content_text|>Let me check.<|end_message|><|message_model|>"
        '<|content_invoke_tool_json|>{"name":"get_weather","args":{"city":"SF"}}<|end_message|>',
        ("I should check the weather.", "Let me check.", [("get_weather", {"city": "SF"})]),
        id="row9-inkling-thinking-text-and-call",
    ),
    pytest.param(
        INKLING,
        '<|message_model|>f<|content_invoke_tool_json|>{"name":"f","args":{}}<|end_message|>'
        "<|message_model|><|content_text|>Done.<|content_model_end_sampling|>",
        ("", "Done.", [("f", {})]),
        id="row9-inkling-name-in-the-header",
    ),
    pytest.param(
        INKLING,
        "<|content_thinking|>Hm.<|content_invoke_tool_json|>"
        '{"name":"f","args":{"a":1}}<|end_message|>',
        ("Hm.", "", [("f", {"a": 1})]),
        id="row9-inkling-thinking-not-closed",
    ),
    pytest.param(INKLING, "No header.", ("", "No header.", []), id="row9-inkling-plain-text"),
    # muse: recipients
    pytest.param(
        MUSE,
        " to=self<|message|>I need to output the invoice details in JSON<|eom|><|start|>assistant"
        ' to=user<|message|>{"amount": 123.45, "date": "2025-12-03"}',
        (
            "I need to output the invoice details in JSON",
            '{"amount": 123.45, "date": "2025-12-03"}',
            [],
        ),
        id="row10-muse-reasoning-and-answer",
    ),
    pytest.param(
        MUSE,
        " to=f<|message|>Calling.<atem:function_calls>\n"
        '<atem:invoke name="f">\n<atem:parameter name="a">x</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls><|eom|> to=user<|message|>Done.<|eot|>",
        ("", "Done.", [("f", {"a": "x"})]),
        id="row10-muse-text-for-a-tool-is-not-shown",
    ),
    pytest.param(
        MUSE,
        ' to=f.f<|message|><atem:function_calls>\n<atem:invoke name="f.f">\n'
        '<atem:parameter name="a">{"b": [1]}</atem:parameter>\n</atem:invoke>\n'
        '<atem:invoke name="x.x">\n</atem:invoke>\n</atem:function_calls>',
        ("", "", [("f", {"a": {"b": [1]}}), ("x.x", {})]),
        id="row10-muse-a-name-twice",
    ),
    pytest.param(
        MUSE,
        "<|start|>assistant<|message|>Hello.<|eot|>",
        ("", "Hello.", []),
        id="row10-muse-no-recipient",
    ),
    pytest.param(
        MUSE,
        " to=self<|message|>Or <atem:function_calls>?<|eom|><|start|>assistant to=user<|message|>"
        'Write <atem:function_calls>\n<atem:invoke name="f">\n</atem:invoke>\n'
        "</atem:function_calls>.<|eot|>",
        (
            "Or <atem:function_calls>?",
            'Write <atem:function_calls>\n<atem:invoke name="f">\n</atem:invoke>\n'
            "</atem:function_calls>.",
            [],
        ),
        id="row10-muse-calls-quoted-in-an-answer-are-text",
    ),
    pytest.param(
        MUSE,
        " to=self<|message|>Need it, to=f or not. to=f<|message|><atem:function_calls>\n"
        '<atem:invoke name="f">\n</atem:invoke>\n</atem:function_calls><|eot|>',
        ("Need it, to=f or not.", "", [("f", {})]),
        id="row10-muse-a-message-that-is-not-ended",
    ),
    pytest.param(
        of("muse"),
        "<|message|>Hm.<|eom|><|start|>assistant to=commentary<|message|>Look.<|eom|>"
        "<|start|>assistant to=developer<|message|>Note.<|eom|>"
        "<|start|>assistant to=user<|message|>Done.<|eot|>",
        ("Hm.", "Look.\nDone.", []),
        id="row10-muse-spark-commentary-and-no-recipient",
    ),
    # gigachat3
    pytest.param(
        of("gigachat3"),
        "<|message_sep|>\n\nfunction call<|role_sep|>\n"
        '{"name": "manage_user_memory", "arguments": {"action": "create", "id": "preferences"}}',
        ("", "", [("manage_user_memory", {"action": "create", "id": "preferences"})]),
        id="row11-gigachat3.0",
    ),
    pytest.param(
        of("gigachat30"),
        'Sure.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {}}',
        ("", "Sure.", [("f", {})]),
        id="row11-gigachat3.0-behind-text",
    ),
    pytest.param(
        of("gigachat3"),
        'Sure.<|function_call|>{"name": "f", "arguments": {}}',
        ("", "Sure.", [("f", {})]),
        id="row11-gigachat3.1",
    ),
    # granite 3.3, hunyuan a13b, magistral, cohere
    pytest.param(
        detect_format("between <think></think> and <response></response> <|tool_call|>"),
        "<think>Hm.</think><response>Hello.</response>",
        ("Hm.", "Hello.", []),
        id="row15-granite3.3-response-tags",
    ),
    pytest.param(
        of(reasoning="hunyuan_a13b"),
        "<think>\nThis is a reasoning section\n</think>\n<answer>\nThis is the rest\n</answer>",
        ("This is a reasoning section", "This is the rest", []),
        id="row22-hunyuan-answer-tags",
    ),
    pytest.param(
        of("mistral"),
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]',
        ("", "", [("f", {"a": 1})]),
        id="row23-mistral-before-v11",
    ),
    pytest.param(
        of("mistral"),
        '[TOOL_CALLS]f[ARGS]{"a": [{"b": 1}]}[TOOL_CALLS]g[ARGS]{}',
        ("", "", [("f", {"a": [{"b": 1}]}), ("g", {})]),
        id="row23-mistral-v11",
    ),
    pytest.param(
        of(reasoning="mistral"),
        "<think>\nHm.\n</think>\nHello.",
        ("Hm.", "Hello.", []),
        id="row23-magistral-2506-think",
    ),
    pytest.param(
        of("cohere_command3"),
        "foo <co>bar</co: 0:[1,2],1:[3,4]>",
        ("", "foo bar", []),
        id="row24-cohere-citations",
    ),
    pytest.param(
        of("cohere_command3"),
        "foo <co: 1>bar</co: 1>, <co>baz</co> <cost>",
        ("", "foo bar, baz <cost>", []),
        id="row24-cohere-citations-of-other-spellings",
    ),
    # harmony
    pytest.param(
        HARMONY,
        "<|channel|>commentary to=get_current_weather <|constrain|>json<|message|>"
        '{"location": "Tokyo"}<|call|>',
        ("", "", [("get_current_weather", {"location": "Tokyo"})]),
        id="row17-harmony-recipient-without-functions",
    ),
    pytest.param(
        HARMONY,
        '<|channel|>commentary to=math.sum <|constrain|>json<|message|>{"a": 2}<|call|>',
        ("", "", [("math.sum", {"a": 2})]),
        id="row17-harmony-dotted-name",
    ),
    pytest.param(
        HARMONY,
        '<|start|>assistant to=functions.f<|channel|>analysis<|message|>{"a": 2}<|call|>',
        ("", "", [("f", {"a": 2})]),
        id="row17-harmony-recipient-before-the-channel",
    ),
    pytest.param(
        HARMONY,
        "<|channel|>commentary to=functions.no_args <|constrain|>json<|message|><|call|>",
        ("", "", [("no_args", {})]),
        id="row17b-harmony-empty-body",
    ),
    pytest.param(
        HARMONY,
        "<|channel|>commentary to=functions.no_args <|constrain|>json<|message|>",
        ("", "", [("no_args", {})]),
        id="row17b-harmony-empty-body-whose-stop-token-does-not-come",
    ),
    *(
        pytest.param(
            HARMONY,
            f"<|channel|>commentary to={recipient}<|message|>Some tool response<|call|>"
            "<|start|>assistant<|channel|>final<|message|>Here is the answer<|end|>",
            ("", "Here is the answer", []),
            id=f"row17c-harmony-text-for-{recipient}",
        )
        for recipient in ("assistant", "python", "browser", "browser.search", "container.exec")
    ),
    pytest.param(
        HARMONY,
        "<|channel|>analysis to=python<|message|>1 + 1<|call|>",
        ("1 + 1", "", []),
        id="row17c-harmony-python-in-analysis-is-reasoning",
    ),
    pytest.param(
        HARMONY,
        "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>commentary to=assistant<|channel|>final<|message|>Hi",
        ("Hm.", "Hi", []),
        id="row17c-harmony-the-last-channel-counts",
    ),
    pytest.param(
        HARMONY,
        '<|channel|>final {"answer": "hi"}<|return|>',
        ("", '<|channel|>final {"answer": "hi"}', []),
        id="harmony-header-without-an-end-is-not-lost",
    ),
    pytest.param(HARMONY, "Hello.", ("", "Hello.", []), id="harmony-text-without-a-header"),
    # gemma4
    pytest.param(
        of("gemma4", "gemma4"),
        "thought\nThe user is asking …<channel|>"
        '<|tool_call>call:get_current_weather{city:<|"|>Dallas<|"|>}<tool_call|>',
        ("The user is asking …", "", [("get_current_weather", {"city": "Dallas"})]),
        id="row21-gemma4-thinking-without-its-opening-tag",
    ),
    pytest.param(
        of("gemma4", "gemma4"),
        "thoughtful people\nthought\nso.",
        ("", "thoughtful people\nthought\nso.", []),
        id="row21-gemma4-a-word-is-a-word",
    ),
    # kimi k3
    pytest.param(
        K3,
        "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Let me look."
        "<|close|>response<|sep|>"
        + k3(
            k3_call("f", ("a", "string", "1"), ("b", "object", '{"c": [1]}'), ("d", "null", "null"))
        )
        + "<|close|>message<|sep|><|end_of_msg|>",
        ("Hm.", "Let me look.", [("f", {"a": "1", "b": {"c": [1]}, "d": None})]),
        id="kimi_k3-whole-message",
    ),
    pytest.param(
        K3,
        k3(
            k3_call("f", ("a", "number", "2.50")),
            k3_call("g", ("a &quot;b&quot; &amp;", "boolean", "true")),
        ),
        ("", "", [("f", {"a": 2.5}), ("g", {'a "b" &': True})]),
        id="kimi_k3-several-calls-and-escapes",
    ),
    pytest.param(
        K3,
        k3(
            '<|open|>call tool="f" index="1"<|sep|><|open|>json type="object"<|sep|>{"a": {"b": 1}}'
            "<|close|>json<|sep|><|close|>call<|sep|>",
            k3_call("g"),
        ),
        ("", "", [("f", {"a": {"b": 1}}), ("g", {})]),
        id="kimi_k3-all-arguments-as-one-object",
    ),
    pytest.param(
        K3,
        k3(k3_call("f", ("code", "string", '\n  if a < b:\n\tprint("&amp;")\n'))),
        ("", "", [("f", {"code": '\n  if a < b:\n\tprint("&amp;")\n'})]),
        id="kimi_k3-text-is-verbatim",
    ),
    pytest.param(
        of("kimi_k3", "kimi_k3"),
        "Hm.<|open|>response<|sep|>Hello.<|close|>response<|sep|>",
        ("Hm.", "Hello.", []),
        id="kimi_k3-thinking-not-closed",
    ),
    # minimax m3
    pytest.param(
        M3_FORMAT,
        "Look.\n"
        + m3(
            el("id", "042")
            + el("note", "\n a <b> & c\n")
            + el("tags", el("item", "a"), el("item", "b"))
            + el("rows", el("item", el("n", "1")), el("item", el("n", "2")))
            + el("to", el("zip", "7"))
            + el("either", el("item", "1"), el("item", "2"))
            + el("more", el("x", "1.5"))
            + el("free", el("t", "a"), el("t", "b")),
            el("tags") + el("to") + el("note"),
        ),
        (
            "",
            "Look.",
            [
                (
                    "order",
                    {
                        "id": 42,
                        "note": "\n a <b> & c\n",
                        "tags": ["a", "b"],
                        "rows": [{"n": 1}, {"n": 2}],
                        "to": {"zip": 7},
                        "either": [1, 2],
                        "more": {"x": 1.5},
                        "free": {"t": ["a", "b"]},
                    },
                ),
                ("order", {"tags": [], "to": {}, "note": ""}),
            ],
        ),
        id="minimax_m3-elements-follow-the-schema",
    ),
    pytest.param(
        M3_FORMAT,
        m3(f"{M3}<note>no end" + el("id", "1")),
        ("", "", [("order", {"note": "no end", "id": 1})]),
        id="minimax_m3-text-without-its-closing-tag-swallows-nothing",
    ),
    pytest.param(
        M3_FORMAT,
        m3(f"{M3}<tags>{el('item', 'a')}"),
        ("", "", [("order", {"tags": ["a"]})]),
        id="minimax_m3-list-without-its-closing-tag",
    ),
    pytest.param(
        M3_FORMAT,
        m3(el("free", "hi ", el("k", "v"), " there")),
        ("", "", [("order", {"free": {"k": "v", "$text": "hi  there"}})]),
        id="minimax_m3-text-beside-elements",
    ),
    pytest.param(
        M3_FORMAT,
        f'{M3}<invoke name="order">{M3}</invoke>',
        ("", f'{M3}<invoke name="order">{M3}</invoke>', []),
        id="minimax_m3-call-outside-its-block-is-text",
    ),
    # command r+, functionary, firefunction, apriel, kimi-vl, deepseek v4.1
    pytest.param(
        of("command_r_plus"),
        'Sure.\nAction: ```json\n[{"tool_name": "f", "parameters": {"a": 1}}]\n```',
        ("", "Sure.", [("f", {"a": 1})]),
        id="command_r_plus",
    ),
    pytest.param(
        of("command_r_plus"),
        "Action: read it.\n```json\n[1]\n```",
        ("", "Action: read it.\n```json\n[1]\n```", []),
        id="command_r_plus-a-block-of-json-is-text",
    ),
    pytest.param(
        F31,
        'Sure.<function=f>{"a": 1}</function><function=g>{}</function>',
        ("", "Sure.", [("f", {"a": 1}), ("g", {})]),
        id="functionary_v31",
    ),
    pytest.param(
        F32,
        'all\nSure.>>>f\n{"a": 1}>>>g\n{}',
        ("", "Sure.", [("f", {"a": 1}), ("g", {})]),
        id="functionary_v32",
    ),
    pytest.param(F32, 'f\n{"a": 1}', ("", "", [("f", {"a": 1})]), id="functionary_v32-call-alone"),
    pytest.param(
        F32,
        "Hello, world!\nFine.",
        ("", "Hello, world!\nFine.", []),
        id="functionary_v32-no-header",
    ),
    pytest.param(
        of("firefunction_v2"),
        ' functools[{"name": "f", "arguments": {"a": 1}}]',
        ("", "", [("f", {"a": 1})]),
        id="firefunction_v2",
    ),
    pytest.param(
        of("hunyuan_a13b", "apriel"),
        "Hm.\n[BEGIN FINAL RESPONSE]\nHello.",
        ("Hm.", "Hello.", []),
        id="apriel",
    ),
    pytest.param(of(reasoning="kimi"), "◁think▷Hm.◁/think▷Hi", ("Hm.", "Hi", []), id="kimi_vl"),
    pytest.param(
        of("deepseek_v41"),
        '<｜DSML｜ calls><｜DSML｜ invoke name="f"><｜DSML｜ parameter name="a" string="false">[1]'
        "</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>",
        ("", "", [("f", {"a": [1]})]),
        id="deepseek_v41",
    ),
]


@pytest.mark.parametrize(("form", "text", "expected"), CASES)
def test_a_familys_output_is_read_as_its_server_reads_it(
    form: OutputFormat, text: str, expected: tuple[str, str, Calls]
) -> None:
    opening = None
    if text.startswith("Hm.") and form.reasoning is not None:  # the prompt opened it
        opening = opening_of(form, f"…{form.reasoning.open}\n", continues=False)
    assert said(text, form, {**PINGS, "order": ORDER}, opening) == expected


def test_a_tool_that_is_called_like_a_builtin_is_called() -> None:
    text = '<|channel|>commentary to=python <|message|>{"code": "1"}<|call|>'
    assert said(text, HARMONY, {"python": None}) == ("", "", [("python", {"code": "1"})])
    assert said(text, HARMONY, {"f": None}) == ("", "", [])


def test_a_call_is_not_shown_if_calls_are_not_allowed() -> None:
    text = (
        "<|content_text|>Hi.<|end_message|><|message_model|>f<|content_invoke_tool_json|>"
        '{"name":"f","args":{}}<|end_message|>'
    )
    assert said(text, INKLING, None) == ("", "Hi.", [])


def test_a_call_that_was_cut_off_before_its_body_is_not_a_call() -> None:
    text = "<|channel|>commentary to=functions.f <|message|>"
    events = parse([text], HARMONY, PINGS, opening=Opening.HEADER, truncated=True)
    assert summary(events) == []


# --- tags with a suffix --------------------------------------------------------------------------

HY = "{{ '<tool_calls{}>'.format(tail) }}"
HY_WRITES = "<think:opensource></think:opensource><tool_calls:opensource><tool_sep:opensource>"
HY_OUTPUT = (
    "<think:opensource>Hm.</think:opensource>Look.<tool_calls:opensource>\n"
    "<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n"
    "<arg_value:opensource>x</arg_value:opensource>\n</tool_call:opensource>\n"
    "</tool_calls:opensource>"
)


def test_the_suffix_of_a_familys_tags_comes_from_what_its_template_writes() -> None:
    form = detect_format(HY + HY_WRITES)
    assert form.name == "hy_v3+hy_v3"
    assert said(HY_OUTPUT, form) == ("Hm.", "Look.", [("f", {"a": "x"})])


@pytest.mark.parametrize(("name", "separator"), [("hy_v3", "<tool_sep:opensource>"), ("hy_v4", "")])
@pytest.mark.parametrize("suffix", [":opensource", ":6124c78e", ""])
def test_the_suffix_of_a_familys_tags_comes_from_the_vocabulary(
    name: str, separator: str, suffix: str
) -> None:
    tokens = f"the\n<tool_calls{suffix}>\na"
    form = detect_format("", calls=name, reasoning=name, tokens=tokens)
    text = HY_OUTPUT.replace("<tool_sep:opensource>", separator).replace(":opensource", suffix)
    assert said(text, form) == ("Hm.", "Look.", [("f", {"a": "x"})])


# --- detection -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "name"),
    [
        pytest.param("<｜DSML｜function_calls>", "deepseek_v32", id="deepseek_v32"),
        pytest.param("<｜DSML｜tool_calls>", "deepseek_v4", id="deepseek_v4"),
        pytest.param("<｜DSML｜ calls>", "deepseek_v41", id="deepseek_v41"),
        pytest.param("<|im_start|>system\nList of tools: [", "lfm2", id="lfm2.5"),
        pytest.param('functools[{"name"', "phi4_mini_json", id="phi4_mini-or-firefunction"),
        pytest.param("by the Salesforce xLAM team", "xlam", id="xlam"),
        pytest.param("[func_name1(param1=value1, …)]", "llama4_pythonic", id="llama4_pythonic"),
        pytest.param(
            f'{M3}<tool_call>{M3}<invoke name="f"><response>', "minimax_m3", id="minimax_m3"
        ),
        pytest.param(
            "<|python_tag|><function=NAME>{}</function>", "functionary_v31", id="functionary_v31"
        ),
        pytest.param("'>>>all\\n' + content", "functionary_v32", id="functionary_v32"),
        pytest.param("function call<|role_sep|>\n", "gigachat30", id="gigachat3.0"),
        pytest.param("Write 'Action:' followed by a list", "command_r_plus", id="command_r_plus"),
    ],
)
def test_a_template_is_not_taken_for_another_familys(template: str, name: str) -> None:
    assert detect_format(template, reasoning="none").name == name


# --- names ---------------------------------------------------------------------------------------

CALL_NAMES = [
    "dots",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "cohere_command3",
    "cohere_command4",
    "ernie45",
    "glm45",
    "glm47",
    "ling3",
    "granite-20b-fc",
    "granite",
    "granite4",
    "hermes",
    "hf",
    "poolside_v1",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "internlm",
    "jamba",
    "lfm2",
    "kimi_k2",
    "kimi_k3",
    "k2_horizon",
    "llama3_json",
    "llama4_json",
    "llama4_pythonic",
    "longcat",
    "mimo",
    "minimax_m2",
    "minimax_m3",
    "minicpm5",
    "mistral",
    "olmo3",
    "plamo3",
    "muse",
    "muse_glimmer",
    "musespark1x",
    "openai",
    "phi4_mini_json",
    "pythonic",
    "qwen3_coder",
    "qwen3_json",
    "qwen3_xml",
    "seed_oss",
    "step3",
    "step3p5",
    "step5",
    "inkling",
    "xlam",
    "gigachat3",
    "functiongemma",
    "gemma4",
    "apertus",
    "apertus2509",
    "deepseekv3",
    "deepseekv31",
    "deepseekv32",
    "deepseekv4",
    "deepseekv41",
    "glm",
    "gpt-oss",
    "llama3",
    "qwen",
    "qwen25",
    "spark25",
    "minimax-m2",
    "minimax-m3",
    "nanbeige",
    "trinity",
    "interns1",
    "hunyuan",
    "gigachat35",
    "iquest_q1",
    "response_template",
]
REASONING_NAMES = [
    "deepseek_r1",
    "deepseek_v3",
    "deepseek_v4",
    "deepseek_v41",
    "poolside_v1",
    "cohere_command3",
    "cohere_command4",
    "ernie45",
    "gemma4",
    "glm45",
    "glm47",
    "ling3",
    "openai_gptoss",
    "granite",
    "granite_thinking_parser",
    "hf",
    "holo2",
    "hunyuan_a13b",
    "hy_v3",
    "hy_v4",
    "kimi_k2",
    "kimi_k3",
    "k2_horizon",
    "mimo",
    "minicpmv",
    "minimax_m2",
    "minimax_m3",
    "mistral",
    "nemotron_v3",
    "olmo3",
    "plamo3",
    "muse",
    "muse_glimmer",
    "musespark1x",
    "qwen3",
    "seed_oss",
    "step3",
    "step3p5",
    "step5",
    "inkling",
    "apertus2509",
    "deepseek-r1",
    "deepseek-v3",
    "deepseek-v4",
    "deepseek-v41",
    "dots",
    "hunyuan",
    "gpt-oss",
    "kimi",
    "qwen3-thinking",
    "minimax",
    "minimax-m3",
    "nanbeige",
    "nemotron_3",
    "interns1",
    "iquest_q1",
    "gigachat35",
    "response_template",
]


@pytest.mark.parametrize("name", CALL_NAMES)
def test_a_name_that_other_servers_have_for_calls_is_known(name: str) -> None:
    form = detect_format("<tool_call><think>", calls=name, reasoning="none")
    assert form.tool_call is not None or form.channels is not None


@pytest.mark.parametrize("name", REASONING_NAMES)
def test_a_name_that_other_servers_have_for_reasoning_is_known(name: str) -> None:
    form = detect_format("<think>", calls="none", reasoning=name)
    assert form.reasoning is not None or form.channels is not None


def test_a_familys_reasoning_alone_makes_no_calls() -> None:
    form = detect_format("", calls="none", reasoning="gpt-oss")
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi"
        '<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>'
    )
    assert said(text, form) == ("Hm.", 'Hi\n{"a": 1}', [])


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'no-such'; there are .*openai_gptoss"):
        named_format("reasoning", "no-such")
