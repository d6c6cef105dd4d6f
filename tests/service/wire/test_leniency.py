"""What clients of other servers send beyond what we know: left out, reported, never in a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.constraint.request import Grammar, JsonSchema, Regex
from service.errors import InvalidRequestError
from service.wire.chat.request import ChatRequest, chat_conversation, decode_chat
from service.wire.completions.request import decode_completion
from service.wire.decode import Ignored
from service.wire.messages.request import decode_count, decode_messages, messages_conversation
from service.wire.messages.request import output_shape as messages_shape
from service.wire.messages.signatures import Signer
from service.wire.responses.conversation import own_items, read_request
from service.wire.responses.request import decode_responses
from service.wire.structured_output import answer_shape
from service.wire.texts.embeddings import decode_embeddings
from service.wire.texts.rerank import decode_rerank, decode_score
from service.wire.texts.tokenize import decode_detokenize, decode_tokenize

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def call(**more: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, **more}


def chat(*, refuse: bool = False, **fields: Any) -> tuple[ChatRequest, list[str]]:
    ignored = Ignored(refuse=refuse)
    body = json.dumps({"messages": [USER], **fields}).encode()
    return decode_chat(body, max_choices=4, ignored=ignored), ignored.names


def turn(**assistant: Any) -> list[dict[str, Any]]:
    return [USER, {"role": "assistant", "content": "b", **assistant}, USER]


PARSED = {"name": "f", "arguments": "{}", "parsed_arguments": {"x": 1}}


# (fields of the request, the paths that are reported)
INSIDE: list[tuple[dict[str, Any], list[str]]] = [
    ({"messages": turn(parsed=None)}, ["messages[1].parsed"]),
    ({"messages": turn(parsed={"a": 1})}, ["messages[1].parsed"]),
    (
        {"messages": turn(tool_calls=[call(function=PARSED)])},
        ["messages[1].tool_calls[0].function.parsed_arguments"],
    ),
    (
        {"messages": turn(provider_specific_fields={"refusal": None})},
        ["messages[1].provider_specific_fields"],
    ),
    (
        {"messages": turn(tool_calls=[call(provider_specific_fields={}, extra_content={"g": 1})])},
        [
            "messages[1].tool_calls[0].provider_specific_fields",
            "messages[1].tool_calls[0].extra_content",
        ],
    ),
    *(
        ({"messages": turn(**{name: "x"})}, [f"messages[1].{name}"])
        for name in (
            *("sender", "reasoning_details", "thinking_blocks", "id", "timestamp"),
            *("prefix", "partial", "finish_reason", "extra_content"),
        )
    ),
    ({"messages": turn(annotations=[{"type": "x"}], cache_control={"type": "ephemeral"})}, []),
    ({"messages": turn(audio={"id": "a"})}, ["messages[1].audio"]),
    ({"tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}]}, []),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "return": {"type": "string"}}}]},
        ["tools[0].function.return"],
    ),
    ({"tools": [{**TOOL, "x": 1}]}, ["tools[0].x"]),
    ({"functions": [{"name": "f", "x": 1}]}, ["functions[0].x"]),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]},
        ["messages[0].content[0].x"],
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a", "cache_control": {"type": "x"}}],
                }
            ]
        },
        [],
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "hm"}]}]},
        ["messages[0].content[0].thinking"],
    ),
]


@pytest.mark.parametrize("refuse", [False, True], ids=["report", "refuse"])
@pytest.mark.parametrize(("fields", "reported"), INSIDE)
def test_unknown_keys_inside_messages_and_tools_are_reported_and_in_no_prompt(
    fields: dict[str, Any], reported: list[str], refuse: bool
) -> None:
    """Also where other unknown fields are refused: a client's SDK put them there."""
    request, ignored = chat(refuse=refuse, **fields)
    assert ignored == reported
    seen = json.dumps(chat_conversation(request).messages) + json.dumps(
        chat_conversation(request).template_tools()
    )
    for path in reported:
        assert f'"{path.rpartition(".")[2]}"' not in seen


def test_what_templates_read_still_arrives() -> None:
    request, ignored = chat(
        messages=[
            {**USER, "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [call(id="c7", x=1)],
                "sender": "agent",
            },
            {"role": "tool", "tool_call_id": "c7", "name": "f", "content": None},
        ]
    )
    assert ignored == ["messages[1].sender", "messages[1].tool_calls[0].x"]
    assert chat_conversation(request).messages == [
        {"role": "user", "content": "Hi", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c7", "type": "function", "function": {"name": "f", "arguments": {}}}
            ],
        },
        {"role": "tool", "content": "", "name": "f", "tool_call_id": "c7"},
    ]


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_a_text_part_may_bear_the_name_that_responses_give_it(kind: str) -> None:
    request, ignored = chat(messages=[{"role": "user", "content": [{"type": kind, "text": "a"}]}])
    assert chat_conversation(request).messages[0]["content"] == "a"
    assert ignored == []


@pytest.mark.parametrize("thought", ["hm", [{"type": "text", "text": "h"}, {"text": "m"}]])
def test_thinking_parts_of_an_assistant_message_are_its_reasoning(thought: Any) -> None:
    parts = [{"type": "thinking", "thinking": thought}, {"type": "text", "text": "b"}]
    request, ignored = chat(messages=turn(content=parts))
    assert chat_conversation(request).messages[1] == {
        "role": "assistant",
        "content": "b",
        "reasoning_content": "hm",
    }
    assert ignored == []


# --- at the top level -----------------------------------------------------------------------------

Decode = Callable[[bytes, Ignored], Any]
ROUTES: list[tuple[Decode, dict[str, Any]]] = [
    (lambda body, i: decode_chat(body, max_choices=4, ignored=i), {"messages": [USER]}),
    (lambda body, i: decode_completion(body, max_choices=4, ignored=i), {"prompt": "a"}),
    (decode_embeddings, {"input": "a"}),
    (decode_rerank, {"query": "a", "documents": ["b"]}),
    (decode_score, {"text_1": "a", "text_2": "b"}),
    (decode_tokenize, {"prompt": "a"}),
    (decode_detokenize, {"tokens": [1]}),
    (decode_responses, {"input": "a"}),
    (decode_messages, {"model": "m", "max_tokens": 5, "messages": [USER]}),
    (decode_count, {"model": "m", "messages": [USER]}),
]
EVERY_ROUTE = pytest.mark.parametrize(
    ("decode", "body"),
    ROUTES,
    ids=[
        *("chat", "completions", "embeddings", "rerank", "score", "tokenize", "detokenize"),
        *("responses", "messages", "count_tokens"),
    ],
)


@EVERY_ROUTE
def test_unknown_fields_are_reported_or_refused_on_every_route(
    decode: Decode, body: dict[str, Any]
) -> None:
    strange = {"mirostat": 2, "kv_transfer_params": {"a": [1]}, "tfs_z": None}
    ignored = Ignored()
    assert decode(json.dumps(body | strange).encode(), ignored) == decode(
        json.dumps(body).encode(), Ignored()
    )
    assert ignored.names == ["mirostat", "kv_transfer_params", "tfs_z"]
    with pytest.raises(InvalidRequestError, match="argument supplied: mirostat") as refused:
        decode(json.dumps(body | strange).encode(), Ignored(refuse=True))
    assert refused.value.param == "mirostat"


@EVERY_ROUTE
def test_a_refusal_says_what_was_probably_meant(decode: Decode, body: dict[str, Any]) -> None:
    name = "system" if "model" in body else "model"
    with pytest.raises(InvalidRequestError, match=rf"Did you mean '{name}'\?"):
        decode(json.dumps({**body, f"{name}z": 1}).encode(), Ignored(refuse=True))


def test_null_and_whole_floats_are_taken_where_they_can_only_mean_one_thing() -> None:
    plain, _ = chat(max_tokens=8, top_logprobs=2, logprobs=True, seed=3)
    loose, ignored = chat(max_tokens=8.0, top_logprobs=2.0, logprobs=True, seed=3.0)
    assert loose == plain
    assert ignored == []
    names = [
        field.name for field in msgspec.structs.fields(ChatRequest) if field.name != "messages"
    ]
    assert chat(**dict.fromkeys(names))[0] == chat()[0]


@pytest.mark.parametrize(
    "fields",
    [
        *({"max_tokens": value} for value in (8.5, "8", True, 1e300)),
        *({"ignore_eos": value} for value in (1, 0.0, "true", [])),
        *({"temperature": value} for value in ("1", True)),
        {"messages": [{**USER, "content": 5.0}]},
        {"messages": None},
    ],
    ids=json.dumps,
)
def test_nothing_else_becomes_a_number_or_a_boolean(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chat(**fields, unknown=1)
    assert refused.value.param


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, None),
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled"}}, True),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": False}, False),
        ({"thinking": {"type": "disabled"}, "enable_thinking": False}, False),
        ({"reasoning": {"enabled": False}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "high"}}, True),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, True),
    ],
)
def test_thinking_is_switched_by_any_of_its_names(
    fields: dict[str, Any], thinks: bool | None
) -> None:
    conversation = chat_conversation(chat(**fields)[0])
    variables = {**conversation.thinking_variables(), **conversation.variables}
    assert variables.get("enable_thinking") is thinks


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
    ],
)
def test_an_error_about_the_effort_names_the_field_that_was_sent(
    fields: dict[str, Any], param: str
) -> None:
    assert chat_conversation(chat(**fields)[0]).effort_param == param


def test_other_keys_of_a_thinking_switch_are_reported() -> None:
    assert chat(thinking={"type": "enabled", "keep": "all"})[1] == ["thinking.keep"]
    with pytest.raises(InvalidRequestError) as refused:
        chat(thinking={"type": "sometimes"})
    assert refused.value.param == "thinking.type"


def test_other_names_of_known_fields() -> None:
    assert chat(repeat_penalty=1.1)[0].repetition_penalty == 1.1
    assert chat(max_new_tokens=7)[0].token_limit == 7
    request, ignored = chat(repeat_penalty=1.1, repetition_penalty=1.2)
    assert (request.repetition_penalty, ignored) == (1.2, ["repeat_penalty"])
    assert chat(usage={"include": True}, stream=True)[0].include_usage
    assert not chat(reasoning={"exclude": True})[0].shows_reasoning
    body = json.dumps({"input": "a", "max_tokens": 9}).encode()
    assert decode_responses(body).max_output_tokens == 9


@pytest.mark.parametrize(
    ("fields", "shape", "reported"),
    [
        ({"regex": "[0-9]{3}"}, Regex(pattern="[0-9]{3}", param="regex"), []),
        ({"ebnf": "root ::= x"}, Grammar(text="root ::= x", param="ebnf"), []),
        ({"grammar": "root ::= x"}, Grammar(text="root ::= x", param="grammar"), []),
        ({"json_schema": SCHEMA}, JsonSchema(schema=SCHEMA, param="json_schema"), []),
        (
            {"json_schema": json.dumps(SCHEMA)},
            JsonSchema(schema=SCHEMA, param="json_schema"),
            [],
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            JsonSchema(schema=SCHEMA, param="response_format.schema"),
            [],
        ),
        (
            {
                "guided_grammar": "root ::= x",
                "structured_outputs": {"grammar": "root ::= x"},
                "guided_decoding_backend": "guidance",
                "guided_whitespace_pattern": " ",
            },
            Grammar(text="root ::= x", param="structured_outputs.grammar"),
            ["guided_decoding_backend", "guided_whitespace_pattern"],
        ),
        (
            {"guided_regex": "a", "structured_outputs": {"regex": "a", "backend": "outlines"}},
            Regex(pattern="a", param="structured_outputs.regex"),
            ["structured_outputs.backend"],
        ),
    ],
)
def test_forms_by_other_servers_names(
    fields: dict[str, Any], shape: Any, reported: list[str]
) -> None:
    request, ignored = chat(**fields)
    assert answer_shape(request) == shape
    assert ignored == reported


def test_embeddings_take_what_other_servers_take() -> None:
    def embed(**fields: Any) -> tuple[Any, list[str]]:
        ignored = Ignored()
        return decode_embeddings(json.dumps({"input": "a", **fields}).encode(), ignored), (
            ignored.names
        )

    extras = {"input_type": "query", "task": "retrieval", "metadata": {"a": 1}, "request_id": "r"}
    assert embed(**extras)[1] == ["input_type", "task"]
    for truncate, expected in (
        (None, (None, None)),
        (False, (None, None)),
        ("NONE", (None, None)),
        (True, (-1, None)),
        ("END", (-1, "right")),
        ("START", (-1, "left")),
    ):
        assert embed(truncate=truncate)[0].truncation == expected
    assert embed(truncate="END", truncate_prompt_tokens=5)[0].truncation == (5, None)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_json, st.sampled_from(["messages", "tools", "response_format", "stream_options", "n"]))
def test_any_value_in_any_place_is_accepted_or_refused_by_name(value: Any, name: str) -> None:
    param: str | None = name
    try:
        chat(**{name: value, "unknown": value})
    except InvalidRequestError as refused:
        param = refused.param
    assert param


# --- pictures and other media ---------------------------------------------------------------------

SENTENCE = "[image: this server reads text only]"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}


def messages(content: Any) -> tuple[Any, list[str]]:
    ignored = Ignored()
    body = {
        "model": "m",
        "max_tokens": 8,
        "messages": [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            },
            {"role": "user", "content": content},
        ],
    }
    request = decode_messages(json.dumps(body).encode(), ignored)
    return messages_conversation(request, Signer()), ignored.names


def test_a_picture_that_a_tool_returned_becomes_a_sentence_in_chat() -> None:
    tool = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}, IMAGE]}
    request, ignored = chat(messages=[*turn(tool_calls=[call()])[:2], tool])
    assert chat_conversation(request).messages[2]["content"] == f"a\n{SENTENCE}"
    assert ignored == ["messages[2].content[1].image_url"]


def test_a_picture_that_a_tool_returned_becomes_a_sentence_in_messages() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "plain"}}
    pdf = {"type": "document", "source": {"type": "base64", "data": "x"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [BLOCK, document, pdf]}
    conversation, ignored = messages([result])
    assert conversation.messages[2]["content"] == (
        f"{SENTENCE}\nplain\n[document: this server reads text only]"
    )
    assert ignored == [
        "messages[2].content[0].content[0].image",
        "messages[2].content[0].content[2].document",
    ]


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
def test_a_picture_that_a_tool_returned_becomes_a_sentence_in_responses(kind: str) -> None:
    output = [{"type": "input_image", "image_url": "data:x"}, {"type": "input_text", "text": "a"}]
    items = [{"type": kind, "call_id": "c", "output": output}]
    request = decode_responses(json.dumps({"input": items}).encode())
    read = read_request(request, [], own_items(request), str)
    assert read.conversation.messages[-1]["content"] == f"{SENTENCE}\na"
    assert read.ignored == ["input[0].output[0].input_image"]


@pytest.mark.parametrize(
    "send",
    [
        lambda: chat(messages=[{"role": "user", "content": [IMAGE]}]),
        lambda: chat(messages=[{"role": "user", "content": [{"type": "input_audio"}]}]),
        lambda: messages([BLOCK]),
        lambda: messages([{"type": "document", "source": {"type": "url", "url": "x"}}]),
    ],
)
def test_a_users_own_picture_is_refused_in_plain_words(send: Callable[[], Any]) -> None:
    with pytest.raises(InvalidRequestError, match="this server takes text only") as refused:
        send()
    assert str(refused.value.param).endswith(".type")


# --- Anthropic's route ----------------------------------------------------------------------------


def test_unknown_keys_inside_messages_blocks_are_reported() -> None:
    conversation, ignored = messages(
        [{"type": "text", "text": "a", "x": 1, "cache_control": {"type": "ephemeral"}}]
    )
    assert ignored == ["messages[2].content[0].x"]
    assert conversation.messages[2] == {"role": "user", "content": "a"}


def test_a_form_may_come_by_its_older_name() -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    body = {"model": "m", "max_tokens": 60, "messages": [USER]}

    def shape(**fields: Any) -> Any:
        ignored = Ignored()
        request = decode_messages(json.dumps(body | fields).encode(), ignored)
        assert ignored.names == []
        return messages_shape(request)

    assert shape(output_format=form) == JsonSchema(schema=SCHEMA, param="output_format.schema")
    assert shape(output_config={"format": form}, output_format=form).schema == SCHEMA
    with pytest.raises(InvalidRequestError):
        shape(output_config={"format": form}, output_format={"type": "json_schema", "schema": {}})
