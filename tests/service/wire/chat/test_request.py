"""Chat requests as real clients send them, and what a chat template gets to see of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.checkpoint.template import ChatTemplate
from service.errors import InvalidRequestError
from service.wire.chat.request import ChatRequest, chat_conversation, decode_chat
from service.wire.decode import Ignored
from service.wire.sampling import IgnoredFields

USER = {"role": "user", "content": "Hi"}


def decode(**fields: Any) -> ChatRequest:
    return decode_chat(json.dumps({"messages": [USER], **fields}).encode(), max_choices=16)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "messages": [USER], "max_completion_tokens": 4},
        {
            "model": "m",
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "max_completion_tokens": 16,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "1 0 m0"}]}],
        },
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    "audio": None,
                    "function_call": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"a": 1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "7"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "strict": True}}],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "response_format": {"type": "text"},
            "store": False,
            "metadata": {"k": "v"},
            "user": "u",
            "service_tier": "auto",
            "temperature": None,
            "stop": None,
        },
    ],
    ids=["an SDK", "a load generator", "an agent's second turn"],
)
def test_requests_of_real_clients_are_taken(body: dict[str, Any]) -> None:
    decode_chat(json.dumps(body).encode(), max_choices=16)


def test_fields_that_do_not_change_the_answer_are_taken() -> None:
    for field in msgspec.structs.fields(IgnoredFields):
        decode(**{field.name: None})


def test_templates_see_plain_text_and_parsed_arguments() -> None:
    request = decode(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning": "Hm.",
                "tool_calls": [
                    {"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}},
                    {"id": "2", "function": {"name": "g", "arguments": "not json"}},
                ],
            },
        ]
    )
    system, user, assistant = chat_conversation(request).messages
    assert system == {"role": "system", "content": "Be brief."}
    assert user["content"] == "a\nb"
    assert assistant["content"] == ""
    assert assistant["reasoning_content"] == "Hm."
    arguments = [call["function"]["arguments"] for call in assistant["tool_calls"]]
    assert arguments == [{"x": 1}, "not json"]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
READS_AN_IMAGE: list[dict[str, Any]] = [
    USER,
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "Image read."},
]


def test_a_tools_image_that_follows_it_as_a_user_message_is_replaced() -> None:
    """opencode sends it there, as do others: a tool message of OpenAI's takes text only."""
    sent = [
        *READS_AN_IMAGE,
        {"role": "user", "content": [{"type": "text", "text": "a.png:"}, IMAGE]},
    ]
    ignored = Ignored()
    body = json.dumps({"messages": sent}).encode()
    request = decode_chat(body, max_choices=1, ignored=ignored)
    (*_, last) = chat_conversation(request).messages
    assert last["content"] == "a.png:\n[image: this server reads text only]"
    assert "messages[3].content[1].image_url" in ignored.names


@pytest.mark.parametrize("before", [[], [*READS_AN_IMAGE, USER]], ids=["first", "after a user's"])
def test_an_image_of_the_user_is_refused(before: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequestError, match="takes text only") as refused:
        decode(messages=[*before, {"role": "user", "content": [IMAGE]}])
    assert refused.value.param == f"messages[{len(before)}].content[0].type"


def test_an_answer_may_echo_the_message_that_it_continues() -> None:
    begun = {"role": "assistant", "content": [{"type": "text", "text": "Once"}]}
    asked = {"messages": [USER, begun], "echo": True}
    assert (
        decode(**asked, continue_final_message=True, add_generation_prompt=False).echoed == "Once"
    )
    assert decode(**asked).echoed == ""


def test_templates_see_tools_only_when_they_may_be_called() -> None:
    tools = [{"function": {"strict": True, "parameters": {}, "name": "f"}, "type": "function"}]
    seen = chat_conversation(decode(tools=tools)).template_tools()
    assert json.dumps(seen) == (
        '[{"type": "function", "function": {"name": "f", "parameters": {}}}]'
    )
    assert chat_conversation(decode(tools=tools, tool_choice="none")).template_tools() is None
    assert chat_conversation(decode()).template_tools() is None


def test_a_tool_without_description_pleases_templates_that_read_one() -> None:
    """gpt-oss's writes it without asking whether there is one."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    seen = chat_conversation(decode(tools=tools)).template_tools()
    reads = ChatTemplate("{% for t in tools %}{{ '// ' + t.function.description }}{% endfor %}")
    prints = ChatTemplate("{{ tools | tojson }}{{ tools[0].function.nothing is defined }}")
    assert reads.render([], tools=seen) == "// "
    assert prints.render([], tools=seen) == f"{json.dumps(tools)}False"


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_names = st.sampled_from([field.name for field in msgspec.structs.fields(ChatRequest)])


@given(fields=st.dictionaries(_names, _json, max_size=4))
def test_any_values_are_accepted_or_refused_by_name(
    fields: dict[str, Any],
) -> None:
    refusal = None
    try:
        decode(**fields)
    except InvalidRequestError as error:
        refusal = error
    assert refusal is None or (refusal.message and refusal.param)


@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_for_any_bytes_the_decoder_raises_nothing_but_a_refusal(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        decode_chat(body, max_choices=16)
