"""gRPC with the embedded model, from the product as a user starts it, along with HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import jsonschema
import openai
import pytest

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.e2e.quire_server import QuireServer
from tests.service.grpc.clients import Answer, put_together

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "description": "Current weather in a city"}


@pytest.fixture(scope="module")
def stub(server: QuireServer, grpc_port: int) -> Iterator[QuireStub]:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        yield QuireStub(channel)


def ask(stub: QuireStub, text: str, *, temperature: float = 0.0, **fields: Any) -> Answer:
    sampling = pb.Sampling(temperature=temperature, seed=1)
    message = pb.Message(role="user", content=text)
    return put_together(stub.Chat(pb.ChatRequest(messages=[message], sampling=sampling, **fields)))


def test_a_chat_answers_what_http_answers(stub: QuireStub, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": "Tell me a story."}],
        seed=1,
        temperature=1.0,
        max_tokens=60,
    )
    [said] = ask(stub, "Tell me a story.", temperature=1.0, max_tokens=60).choices
    assert said.text
    assert said.text == whole.choices[0].message.content


def test_a_tool_call_comes_as_events_and_its_result_is_taken(stub: QuireStub) -> None:
    function = pb.FunctionDefinition(**WEATHER, parameters_json=json.dumps(PARAMETERS))
    tools = [pb.Tool(function=function)]
    question = pb.Message(role="user", content="What is the weather in Paris?")
    sampling = pb.Sampling(temperature=0)
    first = put_together(
        stub.Chat(pb.ChatRequest(messages=[question], tools=tools, sampling=sampling))
    )
    [said] = first.choices
    assert said.finished is not None
    assert said.finished.reason == "tool_calls"
    [call] = said.calls
    assert call["name"] == "get_weather"
    jsonschema.validate(json.loads(call["arguments"]), PARAMETERS)
    assert said.ended_calls == 1

    made = pb.ToolCall(id="call_1", function=pb.FunctionCall(**call))
    messages = [
        question,
        pb.Message(role="assistant", tool_calls=[made]),
        pb.Message(role="tool", tool_call_id="call_1", content='{"temperature": 18}'),
    ]
    second = put_together(
        stub.Chat(pb.ChatRequest(messages=messages, tools=tools, sampling=sampling))
    )
    assert second.choices[0].text


def test_reasoning_comes_before_the_answer_and_apart_from_it(stub: QuireStub) -> None:
    [said] = ask(
        stub, "What is 2 + 3?", chat_template_kwargs_json='{"enable_thinking": true}'
    ).choices
    assert said.reasoning
    assert said.text
    assert "<think>" not in said.text + said.reasoning


def test_an_answer_has_the_requested_form(stub: QuireStub) -> None:
    form = pb.StructuredOutputs(schema_json=json.dumps(PERSON))
    [said] = ask(
        stub, "Tell me about Ada.", temperature=0.7, structured_outputs=form, max_tokens=400
    ).choices
    jsonschema.validate(json.loads(said.text), PERSON)


def test_generate_gives_the_tokens_of_completions(stub: QuireStub, server: QuireServer) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 20, "seed": 1, "return_token_ids": True}
    status, whole = server.post("/v1/completions", body)
    assert status == 200
    sampling = pb.Sampling(seed=1)
    request = pb.GenerateRequest(text="Once upon a time", max_tokens=20, sampling=sampling)
    [said] = put_together(stub.Generate(request)).choices
    assert said.tokens == whole["choices"][0]["token_ids"]
    assert said.text == whole["choices"][0]["text"]
