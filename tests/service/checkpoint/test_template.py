"""Prompts are what transformers would have rendered, and templates cannot break out or blow up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

import pocket
from service.checkpoint import template as module
from service.checkpoint.call_style import CallStyle, CallStyles
from service.checkpoint.checkpoint import load_checkpoint
from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.template import ChatTemplate, TemplateError, TemplateLimitError
from tests.service.tiny_model import CHAT_TEMPLATE, write_tiny_model

HERMES = CHAT_TEMPLATE

HEADERS = """\
{{- bos_token }}
{%- set day = strftime_now("%Y") %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Year: " + day + "\\n" + system + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- generation %}
    {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endgeneration %}
{%- endfor %}
{%- if tools is not none %}
    {{- tools | tojson(indent=2) }}
{%- endif %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

INSTRUCT = """\
{{ bos_token }}
{% set state = namespace(turns=0) %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (state.turns % 2 == 0) %}
        {{ raise_exception('Roles must alternate') }}
    {% endif %}
    {% set state.turns = state.turns + 1 %}
    {% if message['role'] == 'user' %}
[INST] {{ message['content'] }} [/INST]
    {% else %}
{{ message['content'] }}{{ eos_token }}
    {% endif %}
{% endfor %}
"""

REASONING = """\
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.reasoning_content is defined %}
{{- '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' }}
{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{%- set call = {'name': call.function.name, 'arguments': call.function.arguments} %}
{{- '\\n<tool_call>\\n' ~ (call | tojson) ~ '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""

TEMPLATES = {"hermes": HERMES, "headers": HEADERS, "instruct": INSTRUCT, "reasoning": REASONING}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CHATS: dict[str, list[dict[str, Any]]] = {
    "one turn": [{"role": "user", "content": 'Is 3 < 4 & 5 > 2? "Yes" — 你好 🚀 <b>'}],
    "two turns": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": " spaced \n"},
    ],
    "reasoned": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!", "reasoning_content": "Be polite."},
        {"role": "user", "content": "Bye"},
    ],
    "called": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Köln", "tag": "<b>"}},
                }
            ],
        },
        {"role": "user", "content": "12 °C"},
    ],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather <now> & here",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("prompt", [True, False])
def test_prompts_equal_those_of_transformers(
    name: str, chat: str, tools: list[dict[str, Any]] | None, prompt: bool
) -> None:
    variables = {"enable_thinking": False}
    (expected,), _ = render_jinja_template(
        [CHATS[chat]],
        tools=tools,
        chat_template=TEMPLATES[name],
        add_generation_prompt=prompt,
        **SPECIAL,
        **variables,
    )
    ours = ChatTemplate(TEMPLATES[name], SPECIAL).render(
        CHATS[chat], tools=tools, add_generation_prompt=prompt, variables=variables
    )
    assert ours == expected


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("start", ["Once upon", "Once upon "])
def test_a_continued_message_ends_where_its_text_ends(name: str, start: str) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": start}]
    (expected,), _ = render_jinja_template(
        [chat], chat_template=TEMPLATES[name], continue_final_message=True, **SPECIAL
    )
    ours = ChatTemplate(TEMPLATES[name], SPECIAL).render(
        chat, add_generation_prompt=False, continue_final_message=True
    )
    assert ours == expected
    assert ours.rstrip().endswith("Once upon")


@pytest.mark.skipif(
    not (pocket.MODEL_DIR / "tokenizer.json").exists(), reason="pocket is not trained yet"
)
@pytest.mark.parametrize("chat", CHATS)
def test_the_embedded_model_is_prompted_as_transformers_would(chat: str) -> None:
    from transformers import AutoTokenizer

    checkpoint = load_checkpoint(pocket.MODEL_DIR)
    assert checkpoint.template is not None
    ours = checkpoint.template.render(CHATS[chat], tools=TOOLS)
    oracle = AutoTokenizer.from_pretrained(pocket.MODEL_DIR)
    theirs = oracle.apply_chat_template(
        CHATS[chat], tools=TOOLS, add_generation_prompt=True, tokenize=False
    )
    assert ours == theirs
    assert (
        checkpoint.tokenizer.encode(ours, add_special_tokens=False)
        == oracle.apply_chat_template(CHATS[chat], tools=TOOLS, add_generation_prompt=True)[
            "input_ids"
        ]
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{{ messages[7].content }}", "messages"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ messages[0].content + 3 }}", "failed on the messages"),
        ("{{ ''.__class__.__mro__ }}", "forbidden"),
        ("{{ messages.append(1) }}", "forbidden"),
        ("{{ namespace.__init__.__globals__ }}", "forbidden"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "limits"),
    ],
)
def test_a_template_that_fails_says_why_and_harms_nothing(source: str, complaint: str) -> None:
    with pytest.raises(TemplateError, match=complaint):
        ChatTemplate(source).render([{"role": "user", "content": "x"}])


def test_a_template_that_writes_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PROMPT_CHARS", 1000)
    endless = "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="more than 1000"):
        ChatTemplate(endless).render([])


def test_a_template_that_does_not_parse_is_refused_at_the_start() -> None:
    with pytest.raises(TemplateError, match="does not parse"):
        ChatTemplate("{% for %}").compile()


def test_a_templates_variables_are_found() -> None:
    assert "enable_thinking" in ChatTemplate(REASONING).variables
    assert "strftime_now" not in ChatTemplate(HEADERS).variables


def test_the_efforts_that_a_template_knows_are_found() -> None:
    source = "{% if role == 'user' or reasoning_effort in ['low', 'deep'] %}{% endif %}"
    for template in ChatTemplate(source), ChatTemplate("", tool_use=source):
        assert template.find_efforts() == {"low", "deep"}
    with pytest.raises(TemplateError, match="does not parse"):
        ChatTemplate("{% for %}").find_efforts()
    deep = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"
    with pytest.raises(TemplateLimitError):
        ChatTemplate(deep).find_efforts()


NAMED = [
    {"name": "tool_use", "template": "tools: {{ spoken }} <tool_call>"},
    {"name": "default", "template": "plain: {{ other }} <think>"},
]


@pytest.mark.parametrize("in_files", [False, True])
def test_conversations_with_tools_have_a_template_of_their_own(
    in_files: bool, tmp_path: Path
) -> None:
    """Chosen as transformers does."""
    from transformers import AutoTokenizer

    directory = write_tiny_model(tmp_path / "model")
    (directory / "chat_template.jinja").unlink()
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    if in_files:
        (directory / "additional_chat_templates").mkdir()
        for path, entry in zip(
            ("additional_chat_templates/tool_use.jinja", "chat_template.jinja"), NAMED, strict=True
        ):
            (directory / path).write_text(entry["template"], encoding="utf-8")
    else:
        config["chat_template"] = NAMED
        (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    oracle = AutoTokenizer.from_pretrained(directory)
    checkpoint = load_checkpoint(directory)
    template = checkpoint.template
    assert template is not None
    said = {"spoken": "A", "other": "B"}
    for tools in (None, [], TOOLS):
        rendered = template.render(CHATS["one turn"], tools=tools, variables=said)
        assert rendered == oracle.apply_chat_template(
            CHATS["one turn"], tools=tools, tokenize=False, add_generation_prompt=True, **said
        )
    assert {"spoken", "other"} <= template.variables
    assert checkpoint.output_format.name == "think+hermes"


@pytest.mark.parametrize("name", ["raise_exception", "strftime_now", "namespace", "messages"])
def test_a_special_token_does_not_hide_what_templates_have(name: str) -> None:
    source = "{{ bos_token }}{{ %s is string }}" % name  # noqa: UP031 - braces
    for special in SPECIAL, {**SPECIAL, name: "<x>"}:
        template = ChatTemplate(source, special, tool_use=source)
        for tools in None, TOOLS:
            assert template.render(CHATS["one turn"], tools=tools) == "<s>False"


def test_calls_are_passed_in_the_style_of_the_conversations_template() -> None:
    written = "{{ '' + messages[0].tool_calls[0].function.arguments }}"
    template = ChatTemplate("{{ messages[0].tool_calls | length }}", tool_use=written)
    function = {"name": "f", "arguments": {"ok": True}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [{"function": function}]}]
    with pytest.raises(TemplateError, match="can only concatenate str"):
        template.render(messages, tools=[])
    template.styles = CallStyles(with_tools=CallStyle(text_arguments=True))
    assert template.render(messages, tools=[]) == '{"ok": true}'
    assert template.render(messages, tools=[], offsets=MessageOffsets()) == '{"ok": true}'
    assert template.render(messages) == "1"


def test_a_message_with_calls_can_be_continued_where_they_need_null_as_content() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    template.styles = CallStyles(without_tools=CallStyle(null_content=True))
    call = {"function": {"name": "f", "arguments": {}}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert template.render(messages) == "None"
    assert template.render(messages, continue_final_message=True) == ""
