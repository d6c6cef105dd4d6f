"""Templates get the arguments of earlier calls as objects, even malformed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.checkpoint.call_style import CallStyle, CallStyles
from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.template import ChatTemplate
from service.conversation import text_of
from service.wire.call_arguments import call_arguments
from service.wire.chat.request import chat_conversation, decode_chat


@given(st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.text(max_size=5), max_size=4))
def test_arguments_are_the_object_that_they_hold(arguments: dict[str, Any]) -> None:
    assert call_arguments(json.dumps(arguments)) == arguments


@pytest.mark.parametrize("text", ["not json", "[1]", "1", '"a"', "[1, bad]", "[" * 100_000])
def test_arguments_that_are_not_an_object_stay_text(text: str) -> None:
    assert call_arguments(text) == text


@pytest.mark.parametrize("text", ["", "  ", "\n\t ", '{"', "{bad}"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert call_arguments(text) == {}


OUT_OF_RANGE = ["1e309", "-1e400", "9" * 400 + ".5", "-" + "9" * 5000, "NaN", "-Infinity"]


@pytest.mark.parametrize("number", OUT_OF_RANGE, ids=range(len(OUT_OF_RANGE)))
def test_a_number_out_of_range_is_kept_as_its_text(number: str) -> None:
    text = f'{{"city": "Paris", "max": [{number}, 1, {2**80}, 2.5], "note": "keep me"}}'
    kept = {"city": "Paris", "max": [number, 1, 2**80, 2.5], "note": "keep me"}
    assert call_arguments(text) == kept


def test_a_long_number_takes_no_longer_than_other_text() -> None:
    number = "9" * 2_000_000  # to read it as an integer would take minutes
    assert call_arguments(f'{{"a": {number}}}') == {"a": number}


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    (r'{"a": "half \ud83d", "\ude00": 1}', {"a": "half \ufffd", "\ufffd": 1}),
    (r'{"a": "\ud83d\ude00 \ud83d"}', {"a": "😀 \ufffd"}),
    ('{"a": 1, bad}', {"a": 1}),
    (r'{"a": 1, "b": "cost \$5"}', {"a": 1}),
    ('{"a": [1, 2', {"a": [1]}),
    ('{"a": 1, "b": NaN, bad}', {"a": 1}),
    ('{"a": "two\nlines"}', {"a": "two\nlines"}),
    ('{"a": ' + "[" * 100_000, {}),
]


@pytest.mark.parametrize(("text", "read"), MALFORMED, ids=range(len(MALFORMED)))
def test_of_malformed_arguments_what_can_be_read_is_an_object(
    text: str, read: dict[str, Any]
) -> None:
    assert call_arguments(text) == read


@pytest.mark.parametrize("text", ["not json", "[1]", "", '{"a": 1, bad}'])
def test_only_arguments_that_are_an_object_as_a_whole_keep_their_text(text: str) -> None:
    assert text_of(call_arguments(text)) is None


TEXTS = [
    '{"city":"Oslo"}',
    '{"x":1e5,"y":0.10}',
    '{"a":1,"a":2}',
    r'{"u":"\u00e9"}',
    ' { "a" : [ ] }\n',
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_template_that_writes_text_writes_what_the_client_returned(text: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    conversation = chat_conversation(
        decode_chat(json.dumps({"messages": messages}).encode(), max_choices=1)
    )
    template = ChatTemplate(
        "{%- for m in messages %}{%- for call in m.tool_calls or [] %}"
        "{{- call.function.arguments + '|' }}{%- endfor %}{%- endfor %}"
    )
    template.styles = CallStyles(without_tools=CallStyle(text_arguments=True))
    written = template.render(conversation.messages, offsets=MessageOffsets())
    assert written == f"{text}|"


def test_a_conversation_with_a_malformed_call_goes_on() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, bad}'}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "error"},
    ]
    body = json.dumps({"messages": messages}).encode()
    template = ChatTemplate(
        "{%- for m in messages %}{%- for call in m.tool_calls or [] %}"
        "{%- for name, value in call.function.arguments|items %}{{- name }}={{ value }};"
        "{%- endfor %}{%- endfor %}{%- endfor %}"
    )
    conversation = chat_conversation(decode_chat(body, max_choices=1))
    assert template.render(conversation.messages) == "a=1;"
