"""Templates get the arguments of earlier calls as objects, even malformed ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.checkpoint.template import ChatTemplate
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
