"""Where each message begins in a prompt, for templates of several families."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket import MODEL_DIR
from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.template import ChatTemplate
from tests.service.checkpoint.test_template import CHATS, SPECIAL, TEMPLATES
from tests.service.tiny_model import CHAT_TEMPLATE

# Reads the messages from the end first, then each with the ones before and after it.
LOOKS_AROUND = """\
{%- set ns = namespace(last=0) %}
{%- for message in messages[::-1] %}
{%- if message.role == 'user' and not ns.last %}{%- set ns.last = messages|length %}{%- endif %}
{%- endfor %}
{%- if tools %}{{- '# Tools' }}{%- endif %}
{%- for message in messages %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>' }}{%- endif %}
{%- set content = message.content if message.content is string else '' %}
{{- message.role + '\\n' + content|trim }}
{%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
ALL = {
    **TEMPLATES,
    "tiny": CHAT_TEMPLATE,
    "pocket": (MODEL_DIR / "chat_template.jinja").read_text(encoding="utf-8"),
    "looks around": LOOKS_AROUND,
}

_words = st.text(string.ascii_letters, min_size=1, max_size=8)


def starts(source: str, messages: list[dict[str, Any]]) -> tuple[str, list[int] | None]:
    offsets = MessageOffsets()
    template = ChatTemplate(source, SPECIAL)
    text = template.render(messages, offsets=offsets)
    assert text == template.render(messages)
    return text, offsets.starts()


@pytest.mark.parametrize("name", ALL)
@given(turns=st.lists(_words, min_size=1, max_size=6), system=st.booleans())
def test_each_messages_content_lies_between_its_start_and_the_next(
    name: str, turns: list[str], system: bool
) -> None:
    roles = ("user", "assistant")
    messages = [
        {"role": roles[index % 2], "content": f"[{index} {words}]"}
        for index, words in enumerate(turns)
    ]
    if system and name != "instruct":  # which refuses it
        messages.insert(0, {"role": "system", "content": "[rules]"})
    text, found = starts(ALL[name], messages)
    if found is None:  # a template that moves the system's message into the next
        assert system
        return
    assert found[0] == 0
    for message, begin, end in zip(messages, found, [*found[1:], len(text)], strict=True):
        assert message["content"] in text[begin:end]


def test_most_of_the_templates_are_understood() -> None:
    understood = [name for name in ALL if starts(ALL[name], CHATS["two turns"])[1] is not None]
    assert understood == list(ALL)


def test_a_call_without_content_has_its_place() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "[a]"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "[b]"},
    ]
    text, found = starts(LOOKS_AROUND, messages)
    assert found is not None
    assert '"name": "f"' in text[found[1] : found[2]]
    assert "[b]" in text[found[2] :]


def test_a_template_that_writes_everything_at_once_is_not_guessed_at() -> None:
    source = (
        "{%- set all = namespace(text='') %}{%- for message in messages %}"
        "{%- set all.text = all.text ~ message.content %}{%- endfor %}{{- all.text }}"
    )
    text, found = starts(source, CHATS["two turns"])
    assert text
    assert found is None


def test_a_template_that_leaves_a_message_out_is_not_guessed_at() -> None:
    _, found = starts("{{- messages[-1].content }}", CHATS["two turns"])
    assert found is None


def test_without_messages_there_are_no_offsets() -> None:
    offsets = MessageOffsets()
    assert "".join(offsets.follow(["a", "b"])) == "ab"
    assert offsets.starts() is None
