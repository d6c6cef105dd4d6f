"""Protobuf requests become the very structs that HTTP's bodies become."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from service.errors import InvalidRequestError
from service.proto.quire.v1 import quire_pb2 as pb
from service.wire.chat.request import ChatRequest, decode_chat
from service.wire.completions.request import decode_completion
from service.wire.protobuf.decode import read_chat, read_completion
from service.wire.sampling import SamplingFields

SCHEMA = '{"type": "object", "properties": {"b": {}, "a": {"maximum": 1.0, "minimum": 1}}}'

SAMPLING: dict[str, Any] = {
    "n": 2,
    "seed": -(2**63),
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": -1,
    "min_p": 0.125,
    "presence_penalty": -2.0,
    "frequency_penalty": 2.0,
    "repetition_penalty": 1.5,
    "logit_bias": {7: -100.0, 8: 0.5},
    "stop": ["a", "бв"],
    "stop_token_ids": [1, 2],
    "include_stop_str_in_output": True,
    "min_tokens": 3,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "allowed_token_ids": [4],
    "bad_words": ["x"],
    "priority": -5,
    "cache_salt": "s",
    "truncate_prompt_tokens": -1,
    "truncation_side": "right",
    "use_beam_search": False,
    "length_penalty": 0.5,
    "service_tier": "flex",
}


def by_http(body: dict[str, Any]) -> ChatRequest:
    return decode_chat(json.dumps({"stream": True, **body}).encode(), max_choices=16)


def by_grpc(message: pb.ChatRequest) -> ChatRequest:
    request = read_chat(message.SerializeToString(), max_choices=16)
    return request


def say(*messages: pb.Message, **fields: Any) -> pb.ChatRequest:
    return pb.ChatRequest(messages=messages or [pb.Message(role="user", content="Hi")], **fields)


def test_every_sampling_field_is_the_one_that_http_has() -> None:
    assert {field.name for field in pb.Sampling.DESCRIPTOR.fields} == SAMPLING.keys()
    assert SAMPLING.keys() <= set(SamplingFields.__struct_fields__)
    bias = {str(token): value for token, value in SAMPLING["logit_bias"].items()}
    body = {"messages": [{"role": "user", "content": "Hi"}], **SAMPLING, "logit_bias": bias}
    assert by_grpc(say(sampling=pb.Sampling(**SAMPLING))) == by_http(body)


def test_a_whole_conversation_is_the_same_request() -> None:
    call = pb.ToolCall(id="c1", function=pb.FunctionCall(name="f", arguments='{"a": 1}'))
    message = say(
        pb.Message(role="developer", content=""),
        pb.Message(role="user", content="Hi\u0000 🚀", name="ann"),
        pb.Message(role="assistant", tool_calls=[call], reasoning="hm"),
        pb.Message(role="tool", tool_call_id="c1", content="ok"),
        model="m",
        max_tokens=9,
        tools=[
            pb.Tool(
                function=pb.FunctionDefinition(
                    name="f", description="d", parameters_json=SCHEMA, strict=True
                )
            )
        ],
        tool_choice=pb.ToolChoice(function="f"),
        parallel_tool_calls=False,
        reasoning_effort="none",
        chat_template_kwargs_json='{"enable_thinking": true}',
        documents_json=['{"text": "t"}'],
        add_generation_prompt=False,
        continue_final_message=True,
        structured_outputs=pb.StructuredOutputs(schema_json=SCHEMA, disable_any_whitespace=True),
        logprobs=True,
        top_logprobs=3,
    )
    named = {"type": "function", "function": {"name": "f"}}
    function = {"name": "f", "description": "d", "parameters": json.loads(SCHEMA), "strict": True}
    body = {
        "messages": [
            {"role": "developer", "content": ""},
            {"role": "user", "content": "Hi\u0000 🚀", "name": "ann"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}],
                "reasoning": "hm",
            },
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
        "model": "m",
        "max_tokens": 9,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": named,
        "parallel_tool_calls": False,
        "reasoning_effort": "none",
        "chat_template_kwargs": {"enable_thinking": True},
        "documents": [{"text": "t"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "structured_outputs": {"json": json.loads(SCHEMA), "disable_any_whitespace": True},
        "logprobs": True,
        "top_logprobs": 3,
    }
    assert {field.name for field, _ in message.ListFields()} | {"sampling"} == {
        field.name for field in pb.ChatRequest.DESCRIPTOR.fields
    }
    ours, theirs = by_grpc(message), by_http(body)
    assert ours == theirs
    # Equality of dicts sees neither the order of keys nor 1 apart from 1.0; a model sees both.
    assert msgspec.json.encode(ours) == msgspec.json.encode(theirs)


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (pb.StructuredOutputs(json_object=True), {"json_object": True}),
        (pb.StructuredOutputs(regex="a+"), {"regex": "a+"}),
        (
            pb.StructuredOutputs(choice=pb.StructuredOutputs.Choices(options=["a", "b"])),
            {"choice": ["a", "b"]},
        ),
        (pb.StructuredOutputs(grammar='start: "a"'), {"grammar": 'start: "a"'}),
    ],
    ids=["json_object", "regex", "choice", "grammar"],
)
def test_every_form_is_the_one_that_http_has(
    form: pb.StructuredOutputs, body: dict[str, Any]
) -> None:
    asked = {"messages": [{"role": "user", "content": "Hi"}], "structured_outputs": body}
    assert by_grpc(say(structured_outputs=form)) == by_http(asked)


@pytest.mark.parametrize("mode", ["none", "auto", "required"])
def test_a_mode_of_tool_choice_is_a_word(mode: str) -> None:
    assert by_grpc(say(tool_choice=pb.ToolChoice(mode=mode))).tool_choice == mode


def test_prompts_are_text_or_token_ids() -> None:
    common = {"stream": True, "max_tokens": 3, "logprobs": 2, "add_special_tokens": False}
    for prompt, asked in (("Hi", {"text": "Hi"}), ([1, 2], {"token_ids": pb.TokenIds(ids=[1, 2])})):
        message = pb.GenerateRequest(max_tokens=3, logprobs=2, add_special_tokens=False, **asked)
        body = json.dumps({"prompt": prompt, **common}).encode()
        request = read_completion(message.SerializeToString(), max_choices=16)
        assert request == decode_completion(body, max_choices=16)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (pb.ChatRequest(), "messages"),
        (say(pb.Message(content="Hi")), "messages[0].role"),
        (say(pb.Message(role="wizard", content="Hi")), "messages[0].role"),
        (say(pb.Message(role="user")), "messages[0].content"),
        (say(pb.Message(role="tool", content="")), "messages[0].tool_call_id"),
        (say(sampling=pb.Sampling(temperature=math.nan)), "temperature"),
        (say(sampling=pb.Sampling(logit_bias={1: math.inf})), "logit_bias"),
        (say(sampling=pb.Sampling(top_p=1.5)), "top_p"),
        (say(sampling=pb.Sampling(n=17)), "n"),
        (say(sampling=pb.Sampling(stop=["x"] * 17)), "stop"),
        (say(max_tokens=0), "max_tokens"),
        (say(top_logprobs=2), "top_logprobs"),
        (say(chat_template_kwargs_json="{"), "chat_template_kwargs"),
        (say(chat_template_kwargs_json="[1]"), "chat_template_kwargs"),
        (say(chat_template_kwargs_json="[" * 5000), "chat_template_kwargs"),
        (say(documents_json=["{}", "nope"]), "documents[1]"),
        (say(tools=[pb.Tool()]), "tools[0].function"),
        (say(tool_choice=pb.ToolChoice(mode="maybe")), "tool_choice"),
        (
            say(tools=[pb.Tool(function=pb.FunctionDefinition(name="f", parameters_json="1"))]),
            "tools[0].function.parameters",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named_as_http_names_it(message: pb.ChatRequest, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        by_grpc(message)
    assert caught.value.param == param


def test_fields_of_a_later_version_are_refused_not_dropped() -> None:
    unknown = b"\xc0\x3e\x01"  # field 1000, varint 1
    whole = pb.ChatRequest.FromString(say().SerializeToString() + unknown)
    inner = pb.ChatRequest(messages=[pb.Message.FromString(b"\x0a\x04user" + unknown)])
    for message in (whole, inner):
        with pytest.raises(InvalidRequestError, match="1000"):
            by_grpc(message)


def test_bytes_that_are_not_a_message_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="ChatRequest"):
        read_chat(b"\xff\xff", max_choices=16)
