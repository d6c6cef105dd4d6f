"""What is asked and answered, by the real client against the real worker and engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.service.grpc.clients import HELLO, Answer, GrpcService, chat, put_together, trailing
from tests.service.running import free_port, until
from tests.service.running_workers import RunningWorkers
from tests.service.tiny_model import tag_ids

# Random weights write tags at random; here all output must be content.
NO_TAGS = dict.fromkeys(tag_ids(), -100.0)
WEATHER = pb.Tool(
    function=pb.FunctionDefinition(name="weather", parameters_json='{"type":"object"}')
)
HTTP_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}},
}


def http_chat(**fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": HELLO.content}
    return {"messages": [message], "max_tokens": 40, "seed": 7, **fields}


@pytest.mark.parametrize(
    ("sampling", "fields", "http"),
    [
        ({"logit_bias": NO_TAGS}, {}, {}),
        ({"n": 3}, {}, {}),
        ({"temperature": 0}, {}, {}),
        ({"use_beam_search": True, "n": 3}, {}, {}),
        ({"truncate_prompt_tokens": 5}, {}, {}),
        ({"stop": ["e", "zz"]}, {}, {}),
        ({"stop": ["\ufffd"], "include_stop_str_in_output": True}, {}, {}),
        ({"skip_special_tokens": False, "ignore_eos": True}, {}, {}),
        ({}, {"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        (
            {"logit_bias": {tag_ids()[1]: 6, tag_ids()[2]: 6}},
            {"tools": [WEATHER], "chat_template_kwargs_json": '{"enable_thinking": true}'},
            {"tools": [HTTP_WEATHER], "chat_template_kwargs": {"enable_thinking": True}},
        ),
        (
            {},
            {
                "tools": [WEATHER],
                "tool_choice": pb.ToolChoice(mode="required"),
                "reasoning_effort": "none",
            },
            {"tools": [HTTP_WEATHER], "tool_choice": "required", "reasoning_effort": "none"},
        ),
        (
            {},
            {"structured_outputs": pb.StructuredOutputs(regex="[ab]{3}c")},
            {"structured_outputs": {"regex": "[ab]{3}c"}},
        ),
    ],
    ids=[
        *(
            "plain",
            "n",
            "greedy",
            "beams",
            "truncated",
            "stop",
            "stop shown",
            "specials",
            "logprobs",
        ),
        *("reasoning and calls", "a call", "regex"),
    ],
)
def test_a_chat_says_what_http_says(
    service: GrpcService, sampling: dict[str, Any], fields: dict[str, Any], http: dict[str, Any]
) -> None:
    bias = {str(token): value for token, value in sampling.get("logit_bias", {}).items()}
    status, whole = service.post(
        "/v1/chat/completions", http_chat(**{**sampling, **http, "logit_bias": bias})
    )
    assert status == 200, whole
    request = chat(sampling=pb.Sampling(seed=7, **sampling), **fields)
    answer = put_together(service.stub.Chat(request))
    assert len(answer.choices) == len(whole["choices"])
    for said, choice in zip(answer.choices, whole["choices"], strict=True):
        message = choice["message"]
        assert said.text == (message["content"] or "")
        assert said.reasoning == message.get("reasoning", "")
        assert said.calls == [
            {key: call["function"][key] for key in ("name", "arguments")}
            for call in message.get("tool_calls", [])
        ]
        assert said.finished is not None
        assert said.finished.reason == choice["finish_reason"]
        matched = said.finished.WhichOneof("matched")
        assert (matched and getattr(said.finished, matched)) == choice["stop_reason"]
        entries = (choice["logprobs"] or {}).get("content", [])
        assert [entry.logprob for entry in said.logprobs] == [e["logprob"] for e in entries]
        assert [list(entry.token) for entry in said.logprobs] == [e["bytes"] for e in entries]
        assert [[other.logprob for other in entry.top] for entry in said.logprobs] == [
            [other["logprob"] for other in e["top_logprobs"]] for e in entries
        ]
    usage = whole["usage"]
    assert answer.usage.prompt_tokens == usage["prompt_tokens"] == answer.started.prompt_tokens
    assert answer.usage.completion_tokens == usage["completion_tokens"]
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    assert answer.usage.reasoning_tokens == reasoning
    if "chat_template_kwargs" in http:
        assert answer.choices[0].reasoning, "else this case shows nothing"
    if "tool_choice" in http:
        assert answer.choices[0].calls[0]["name"] == "weather"


@pytest.mark.parametrize(
    ("prompt", "sampling", "logprobs"),
    [
        ("Once upon a time", {"seed": 3}, None),
        ([40, 41, 42], {"seed": 3, "n": 2}, 2),
        ("Hello", {"seed": 5, "stop": ["e"]}, 0),
        ("Hello", {"seed": 5, "stop_token_ids": list(range(0, 512, 3))}, 1),
    ],
    ids=["text", "token ids", "stop string", "stop token"],
)
def test_generate_gives_the_tokens_of_http(
    service: GrpcService, prompt: str | list[int], sampling: dict[str, Any], logprobs: int | None
) -> None:
    body = {"prompt": prompt, "max_tokens": 30, "logprobs": logprobs, **sampling}
    status, whole = service.post("/v1/completions", {**body, "return_token_ids": True})
    assert status == 200, whole
    asked = {"text": prompt} if isinstance(prompt, str) else {"token_ids": pb.TokenIds(ids=prompt)}
    request = pb.GenerateRequest(
        max_tokens=30, logprobs=logprobs, sampling=pb.Sampling(**sampling), **asked
    )
    answer = put_together(service.stub.Generate(request))
    assert len(answer.choices) == len(whole["choices"])
    for said, choice in zip(answer.choices, whole["choices"], strict=True):
        assert said.tokens == choice["token_ids"]
        assert said.text == choice["text"]
        assert said.finished is not None
        assert said.finished.reason == choice["finish_reason"]
        assert said.finished.tokens == len(said.tokens)
        if logprobs is None:
            assert not said.logprobs
            continue
        assert [entry.token_id for entry in said.logprobs] == said.tokens
        assert {len(entry.top) for entry in said.logprobs} == {logprobs}
        shown = choice["logprobs"]["token_logprobs"]
        assert [entry.logprob for entry in said.logprobs][: len(shown)] == shown
    assert answer.usage.completion_tokens == whole["usage"]["completion_tokens"]


async def test_the_async_client_gets_the_same(service: GrpcService) -> None:
    request = chat(sampling=pb.Sampling(seed=7, n=2))
    whole = put_together(service.stub.Chat(request))

    async def ask(stub: QuireStub) -> Answer:
        return put_together([response async for response in stub.Chat(request)])

    async with grpc.aio.insecure_channel(service.target) as channel:
        answers = await asyncio.gather(*(ask(QuireStub(channel)) for _ in range(8)))
    assert [answer.choices for answer in answers] == [whole.choices] * 8


def test_models_are_those_of_http(service: GrpcService) -> None:
    [model] = service.stub.ListModels(pb.ListModelsRequest()).models
    [card] = json.loads(service.get("/v1/models")[1])["data"]
    for field in pb.Model.DESCRIPTOR.fields:
        value = getattr(model, field.name)
        assert (list(value) if field.is_repeated else value) == card[field.name]


@pytest.mark.parametrize(
    ("fields", "http"),
    [
        ([{"text": "The quick brown fox"}, {"text": "jumps"}], ["The quick brown fox", "jumps"]),
        ([{"token_ids": pb.TokenIds(ids=[40, 41, 42])}], [[40, 41, 42]]),
    ],
    ids=["texts", "token ids"],
)
def test_embeddings_are_those_of_http(
    service: GrpcService, fields: list[dict[str, Any]], http: list[Any]
) -> None:
    options = {"dimensions": 32, "normalize": False, "truncate_prompt_tokens": 2}
    status, whole = service.post("/v1/embeddings", {"input": http, **options})
    assert status == 200, whole
    asked = [pb.EmbedInput(**one) for one in fields]
    answer = service.stub.Embed(pb.EmbedRequest(input=asked, **options))
    vectors = [list(one.values) for one in answer.embeddings]
    assert {len(vector) for vector in vectors} == {32}
    for ours, theirs in zip(vectors, whole["data"], strict=True):
        assert ours == pytest.approx(theirs["embedding"], abs=1e-6)
    assert (answer.model, answer.prompt_tokens) == ("tiny", whole["usage"]["prompt_tokens"])


@pytest.mark.parametrize(
    ("request_", "http"),
    [
        (pb.EmbedRequest(), {}),
        (pb.EmbedRequest(input=[pb.EmbedInput()]), {"input": [None]}),
        (
            pb.EmbedRequest(
                input=[pb.EmbedInput(text="a"), pb.EmbedInput(token_ids=pb.TokenIds(ids=[1]))]
            ),
            {"input": ["a", [1]]},
        ),
        (
            pb.EmbedRequest(input=[pb.EmbedInput(text="a")], dimensions=65),
            {"input": ["a"], "dimensions": 65},
        ),
    ],
    ids=["nothing", "neither", "both", "too long"],
)
def test_what_cannot_be_embedded_is_reported_as_over_http(
    service: GrpcService, request_: pb.EmbedRequest, http: dict[str, Any]
) -> None:
    _, reply = service.post("/v1/embeddings", http)
    with pytest.raises(grpc.RpcError) as caught:
        service.stub.Embed(request_)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == reply["error"]["message"]
    assert trailing(caught.value)["quire-error-param"] == reply["error"]["param"]


def test_an_embedding_whose_client_leaves_is_given_up(service: GrpcService) -> None:
    before = service.outcomes("grpc_embed").get("client_gone", 0)
    ids = pb.TokenIds(ids=range(1, 91))
    request = pb.EmbedRequest(input=[pb.EmbedInput(token_ids=ids) for _ in range(2000)])
    in_progress = 'quire_requests_in_progress{route="grpc_embed"} 1.0'

    def is_given_up() -> bool:
        call = service.stub.Embed.future(request)
        until(lambda: in_progress in service.get("/metrics")[1].decode(), 10, "it to begin")
        call.cancel()
        service.wait_idle(seconds=2)
        return service.outcomes("grpc_embed").get("client_gone", 0) == before + 1

    # On a busy machine one may be answered before this process gets to cancel it.
    until(is_given_up, 20, "one to be counted as left by its client")


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "http", "code"),
    [
        (pb.ChatRequest(), {"stream": True}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            chat(sampling=pb.Sampling(temperature=200)),
            http_chat(temperature=200),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (chat(model="gpt"), http_chat(model="gpt"), grpc.StatusCode.NOT_FOUND),
        (
            chat(sampling=pb.Sampling(stop_token_ids=[5000])),
            http_chat(stop_token_ids=[5000]),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            chat(chat_template_kwargs_json='{"wizard": 1}'),
            http_chat(chat_template_kwargs={"wizard": 1}),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            chat(structured_outputs=pb.StructuredOutputs(regex="(")),
            http_chat(structured_outputs={"regex": "("}),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            pb.ChatRequest(messages=[pb.Message(role="user", content="word " * 600)]),
            {"messages": [{"role": "user", "content": "word " * 600}]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            pb.ChatRequest(messages=[pb.Message(role="user", content="please raise")]),
            {"messages": [{"role": "user", "content": "please raise"}]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
    ids=[
        *("no messages", "out of bounds", "no such model", "no such token", "template variable"),
        *("no regex", "too long", "the template's own"),
    ],
)
def test_a_refusal_has_the_words_and_the_field_of_http(
    service: GrpcService, request_: pb.ChatRequest, http: dict[str, Any], code: grpc.StatusCode
) -> None:
    _, reply = service.post("/v1/chat/completions", http)
    with pytest.raises(grpc.RpcError) as caught:
        list(service.stub.Chat(request_))
    error, details = caught.value, trailing(caught.value)
    assert error.code() is code
    assert error.details() == reply["error"]["message"]
    assert details.get("quire-error-param") == reply["error"]["param"]
    assert details.get("quire-error-code") == reply["error"]["code"]
    assert details["x-quire-reason"].startswith("refused:")
    assert details["x-request-id"].startswith("req_")
    assert not error.initial_metadata(), "else no client would retry by itself"


def test_a_call_is_aborted_at_another_worker(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(2)]
    with RunningWorkers(2, tmp_path, args_of=lambda n: (f"--grpc-port={ports[n]}",)) as workers:
        channels = [grpc.insecure_channel(f"127.0.0.1:{port}") for port in ports]
        stubs = [QuireStub(channel) for channel in channels]
        stream = stubs[0].Chat(chat(max_tokens=4000, sampling=pb.Sampling(ignore_eos=True)))
        request_id = next(stream).events[0].started.request_id
        assert request_id.startswith("req_00")
        unknown = f"{request_id[:-4]}0000"
        for asked, stub in ((unknown, stubs[1]), (unknown, stubs[0])):
            with pytest.raises(grpc.RpcError) as failed:
                stub.Abort(pb.AbortRequest(request_id=asked))
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        stubs[1].Abort(pb.AbortRequest(request_id=request_id))
        with pytest.raises(grpc.RpcError) as ended:
            list(stream)
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        until(lambda: not any(workers[0].engine_counts().values()), 5, "its blocks are free")
        for channel in channels:
            channel.close()
