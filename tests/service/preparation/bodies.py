"""Good and bad requests of every API, for the tests that prepare them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

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
    step: str
    body: bytes
    fields: dict[str, Any]


def case(name: str, step: str, body: Any, **fields: Any) -> Case:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(f"{step}: {name}", step, data, fields)


def chat(name: str, **fields: Any) -> Case:
    return case(name, "chat", {"messages": USER, **fields})


def completion(name: str, prompt: Any, **fields: Any) -> Case:
    return case(name, "completion", {"prompt": prompt, **fields})


def responses(name: str, input_: Any, **fields: Any) -> Case:
    return case(name, "responses", {"input": input_, **fields}, **RESPONSES)


def messages(name: str, **fields: Any) -> Case:
    body = {"model": "pocket", "max_tokens": 9, "messages": USER, **fields}
    return case(name, "messages", body)


def grpc(name: str, step: str, message: Any) -> Case:
    return case(name, step, message.SerializeToString())


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
    case("no JSON", "chat", b"{"),
    case("nested", "chat", b'{"messages":' + b"[" * 5000),
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
    case("count", "input_tokens", {"input": "Hi"}, **RESPONSES),
    case("a message", "message", {**CREATE, "stream_id": "a"}, **RESPONSES, remembered=True),
    case("none", "message", {"type": "response.steer", "input": "Hi"}, **RESPONSES),
    case("a warm-up", "warm_up", {**CREATE, "generate": False}, **RESPONSES, created=7),
    case("a warm-up of no model", "warm_up", {**CREATE, "model": "x"}, **RESPONSES, created=7),
    messages("plain", stream=True),
    messages("blocks", messages=[{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]),
    messages("caching", system=[{"type": "text", "text": "s", "cache_control": {}}]),
    messages("ignored", moon=1, tools=[{"type": "web_search", "name": "w"}]),
    messages("a form", output_config={"format": {"type": "json_schema", "schema": SCHEMA}}),
    messages("a thread", thread={}),
    messages("too long", messages=[{"role": "user", "content": LONG}]),
    messages("a little budget", thinking={"type": "enabled", "budget_tokens": 5}),
    case("count", "count_tokens", {"model": "pocket", "messages": USER}),
    case("text", "tokenize", {"prompt": "Hi you", "return_token_strs": True}),
    case("messages", "tokenize", {"messages": USER, "add_special_tokens": True}),
    case("both", "tokenize", {"prompt": "a", "messages": USER}),
    case("far too long", "tokenize", {"prompt": "a" * 1_100_000}),
    case("tokens", "detokenize", {"tokens": [5, 6, 7]}),
    case("no tokens", "detokenize", {"tokens": [10**6]}),
    case("texts", "embeddings", {"input": ["a", "b c"], "dimensions": 4}),
    case("tokens", "embeddings", {"input": [[1, 2], [3]]}),
    case("cut", "embeddings", {"input": LONG, "truncate_prompt_tokens": 7}),
    case("too long", "embeddings", {"input": ["a", LONG]}),
    case("an empty one", "embeddings", {"input": ["a", ""]}),
    case("too many dimensions", "embeddings", {"input": "a", "dimensions": 99}),
    case("texts", "rerank", {"query": "a", "documents": ["b", {"text": "c"}]}),
    case("without texts", "rerank", {"query": "a", "documents": ["b"], "return_documents": False}),
    case("texts", "score", {"text_1": "a", "text_2": ["b", "c"]}),
    case("texts of the second version", "rerank_v2", {"query": "a", "documents": ["b"]}),
    case("unlike lists", "score", {"text_1": ["a", "b"], "text_2": "c"}),
    grpc("chat", "grpc_chat", pb.ChatRequest(messages=[pb.Message(role="user", content="Hi")])),
    case("no message", "grpc_chat", b"\xff\xff"),
    grpc("text", "grpc_completion", pb.GenerateRequest(text="Hi")),
    grpc("texts", "grpc_embeddings", pb.EmbedRequest(input=[pb.EmbedInput(text="Hi")])),
)
