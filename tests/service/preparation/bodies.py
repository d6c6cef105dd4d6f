"""Good and bad requests of every API, for whoever prepares them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from service.preparation.jobs import (
    ChatJob,
    CompletionJob,
    CountTokensJob,
    DetokenizeJob,
    EmbeddingsJob,
    GrpcChatJob,
    GrpcCompletionJob,
    GrpcEmbeddingsJob,
    InputTokensJob,
    Job,
    MessageJob,
    MessagesJob,
    RerankJob,
    ResponsesJob,
    ScoreJob,
    TokenizeJob,
    WarmUpJob,
)
from service.proto.quire.v1 import quire_pb2 as pb

USER = [{"role": "user", "content": "Hi"}]
LONG = "word and word " * 5000
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
}
RESPONSES: dict[str, Any] = {"owner": "me", "response_id": "resp_" + "0" * 32}

CREATE = {"type": "response.create", "input": "Hi"}


class Case(NamedTuple):
    name: str
    kind: type[Job]
    body: bytes
    fields: dict[str, Any]


def case(name: str, kind: type[Job], body: Any, **fields: Any) -> Case:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(f"{kind.__name__}: {name}", kind, data, fields)


def chat(name: str, **fields: Any) -> Case:
    return case(name, ChatJob, {"messages": USER, **fields})


def completion(name: str, prompt: Any, **fields: Any) -> Case:
    return case(name, CompletionJob, {"prompt": prompt, **fields})


def responses(name: str, input_: Any, **fields: Any) -> Case:
    return case(name, ResponsesJob, {"input": input_, **fields}, **RESPONSES)


def messages(name: str, **fields: Any) -> Case:
    body = {"model": "pocket", "max_tokens": 9, "messages": USER, **fields}
    return case(name, MessagesJob, body)


def grpc(name: str, kind: type[Job], message: Any) -> Case:
    return case(name, kind, message.SerializeToString())


CASES = (
    chat("plain"),
    chat("stream", stream=True, stream_options={"include_usage": True}, request_id="mine"),
    chat("tools", tools=[TOOL], tool_choice="auto"),
    chat("a form", response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}}),
    chat("gbnf", guided_grammar='root ::= "a"'),
    chat("two forms", guided_regex="a", guided_choice=["a"]),
    chat("a form for beams", guided_regex="a", use_beam_search=True),
    chat("functions", functions=[TOOL["function"]]),
    chat("heavy functions", functions=[{"name": "f", "description": LONG}]),
    chat(
        "echo",
        messages=[*USER, {"role": "assistant", "content": "I am"}],
        echo=True,
        continue_final_message=True,
        add_generation_prompt=False,
    ),
    chat("ignored", prediction={"type": "content", "content": LONG, "n": 10**30}, verbosity="low"),
    chat("sampling", logit_bias={"5": 1}, bad_words=["no"], allowed_token_ids=[1, 2], n=3, seed=4),
    chat("truncated", messages=[{"role": "user", "content": LONG}], truncate_prompt_tokens=20),
    chat("too long", messages=[{"role": "user", "content": LONG}]),
    chat("no message", messages=[]),
    chat("another model", model="nobody"),
    chat("an unknown variable", chat_template_kwargs={"moon": 1}),
    chat("an unknown field", moon=1),
    chat("a token that is none", allowed_token_ids=[10**6]),
    case("no JSON", ChatJob, b"{"),
    case("nested", ChatJob, b'{"messages":' + b"[" * 5000),
    completion("text", "Hi", echo=True, logprobs=2),
    completion("texts", ["Hi", "you"], max_tokens=3, n=2, best_of=3),
    completion("tokens", [1, 2, 3], echo=True),
    completion("token lists", [[1, 2], [3]]),
    completion("cut", LONG, truncate_prompt_tokens=9, echo=True),
    completion("cut on the right", LONG, truncate_prompt_tokens=9, truncation_side="right"),
    completion("cut to nothing", LONG, truncate_prompt_tokens=0),
    completion("too long", LONG),
    completion("too many tokens", [5] * 5000),
    completion("a mixture", ["Hi", 3]),
    completion("empty", ""),
    completion("no token", [10**6]),
    responses("text", "Hi"),
    responses("told back", "Hi", instructions=LONG[:9000], metadata={"a": "b"}, store=False),
    responses(
        "items",
        [
            {"role": "user", "content": "a"},
            {"type": "reasoning", "content": [{"text": "think"}]},
            {"type": "message", "role": "assistant", "content": "b"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "c"},
            {"type": "moon"},
        ],
        tools=[{"type": "function", **TOOL["function"]}, {"type": "custom", "name": "c"}],
    ),
    responses("a form", "Hi", text={"format": {"type": "json_object"}}),
    responses("cut", [*USER, *[{"role": "user", "content": LONG[:9000]}] * 6], truncation="auto"),
    responses("too long", LONG),
    responses("a reference", [{"type": "item_reference", "id": "msg_" + "1" * 32 + "_0"}]),
    responses("a previous one", "Hi", previous_response_id="resp_1"),
    responses("a bad tool", "Hi", tools=[{"name": "f"}]),
    responses("a bad part", [{"role": "user", "content": [{"type": "moon"}]}]),
    responses("a foreign seal", [{"type": "reasoning", "encrypted_content": "x"}]),
    responses("a summary", [*USER, {"type": "compaction_trigger"}]),
    case("count", InputTokensJob, {"input": "Hi"}, **RESPONSES),
    case("a message", MessageJob, {**CREATE, "stream_id": "a"}, **RESPONSES, remembered=True),
    case("none", MessageJob, {"type": "response.steer", "input": "Hi"}, **RESPONSES),
    case("a warm-up", WarmUpJob, {**CREATE, "generate": False}, **RESPONSES, created=7),
    case("a warm-up of no model", WarmUpJob, {**CREATE, "model": "x"}, **RESPONSES, created=7),
    messages("plain", stream=True),
    messages("blocks", messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]),
    messages("caching", system=[{"type": "text", "text": "s", "cache_control": {}}]),
    messages("ignored", moon=1, tools=[{"type": "web_search", "name": "w"}]),
    messages("a form", output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
    messages("a thread", thread={}),
    messages("too long", messages=[{"role": "user", "content": LONG}]),
    messages("a little budget", thinking={"type": "enabled", "budget_tokens": 5}),
    case("count", CountTokensJob, {"model": "pocket", "messages": USER}),
    case("text", TokenizeJob, {"prompt": "Hi you", "return_token_strs": True}),
    case("messages", TokenizeJob, {"messages": USER, "add_special_tokens": True}),
    case("both", TokenizeJob, {"prompt": "a", "messages": USER}),
    case("far too long", TokenizeJob, {"prompt": "a" * 1_100_000}),
    case("tokens", DetokenizeJob, {"tokens": [5, 6, 7]}),
    case("no tokens", DetokenizeJob, {"tokens": [10**6]}),
    case("texts", EmbeddingsJob, {"input": ["a", "b c"], "dimensions": 4}),
    case("tokens", EmbeddingsJob, {"input": [[1, 2], [3]]}),
    case("cut", EmbeddingsJob, {"input": LONG, "truncate_prompt_tokens": 7}),
    case("too long", EmbeddingsJob, {"input": ["a", LONG]}),
    case("an empty one", EmbeddingsJob, {"input": ["a", ""]}),
    case("too many dimensions", EmbeddingsJob, {"input": "a", "dimensions": 99}),
    case("texts", RerankJob, {"query": "a", "documents": ["b", {"text": "c"}]}),
    case("without texts", RerankJob, {"query": "a", "documents": ["b"], "return_documents": False}),
    case("texts", ScoreJob, {"text_1": "a", "text_2": ["b", "c"]}),
    case("unlike lists", ScoreJob, {"text_1": ["a", "b"], "text_2": "c"}),
    grpc("chat", GrpcChatJob, pb.ChatRequest(messages=[pb.Message(role="user", content="Hi")])),
    case("no message", GrpcChatJob, b"\xff\xff"),
    grpc("text", GrpcCompletionJob, pb.GenerateRequest(text="Hi")),
    grpc("texts", GrpcEmbeddingsJob, pb.EmbedRequest(input=[pb.EmbedInput(text="Hi")])),
)
