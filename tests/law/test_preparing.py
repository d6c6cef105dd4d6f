"""A law of work: what one request may cost everybody else while it is prepared.

Each of these once froze the event loop for seconds, or filled gigabytes.
"""

from __future__ import annotations

from typing import Any

import pytest

from service.proto.quire.v1 import quire_pb2 as pb
from tests.law.measuring import GRPC, Ask, LawServer

CHAT, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"
LETTERS = "abcdefghij klmnop. " * 400_000  # 7.6 MB


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def call(number: int) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": f"c{number}",
        "name": f"tool{number % 1024}",
        "arguments": "{}",
    }


def answered(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}


CASES: dict[str, list[Ask]] = {
    "six messages of 7.6 MB": [Ask(CHAT, {"messages": said(LETTERS)})] * 6,
    "ten long texts to tokenize": [Ask("/tokenize", {"prompt": LETTERS[: 1 << 20]})] * 10,
    "thousands of items that add a tool": [
        Ask(
            RESPONSES,
            {
                "input": [
                    {"type": "additional_tools", "tools": [tool(f"tool{number}")]}
                    for number in range(16_384)
                ]
            },
        )
    ],
    "thousands of items of one turn": [
        Ask(RESPONSES, {"input": [answered("a" * 450)] * 16_000}),
    ],
    "thousands of calls of a thousand tools": [
        Ask(
            RESPONSES,
            {
                "input": [call(number) for number in range(16_000)],
                "tools": [tool(f"tool{number}") for number in range(1024)],
            },
        )
    ],
    "four million token ids": [Ask(COMPLETIONS, {"prompt": [5] * 3_900_000, "max_tokens": 1})],
    "256 prompts": [Ask(COMPLETIONS, {"prompt": ["word and word " * 280] * 256, "max_tokens": 1})],
    "long bad words": [
        Ask(COMPLETIONS, {"prompt": "a", "bad_words": [f"{i} " * 200 for i in range(128)]})
    ],
    "a grammar of thousands of items": [
        Ask(
            RESPONSES,
            {
                "input": "a",
                "tools": [
                    {
                        "type": "custom",
                        "name": "c",
                        "format": {
                            "type": "grammar",
                            "syntax": "lark",
                            "definition": "start: " + '"a" ' * 8000,
                        },
                    }
                ],
                "tool_choice": "required",
            },
        )
    ],
    "four million ids to read back": [Ask("/detokenize", {"tokens": [5] * 3_900_000})],
    "much that is not known": [
        Ask(RESPONSES, {"input": [{"type": "x" * 400}] * 16_000}),
        Ask(
            "/v1/messages",
            {"model": "tiny", "max_tokens": 1, "messages": said("a")}
            | {f"unknown{number}": 1 for number in range(100_000)},
        ),
    ],
    "a great schema": [
        Ask(
            CHAT,
            {
                "messages": said("a"),
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "schema": {"properties": {f"p{i}": {"enum": [i]} for i in range(60_000)}}
                    },
                },
            },
        )
    ],
    "what is told back": [
        Ask(
            RESPONSES,
            {
                "input": "a",
                "instructions": "word " * 20_000,
                "tools": [tool("t") | {"description": "word " * 20_000}],
                "max_output_tokens": 4,
                "stream": True,
            },
        )
    ],
}


MANY = 2048
POOLING_CASES: dict[str, list[Ask]] = {
    "many texts to embed": [
        Ask("/v1/embeddings", {"input": ["word " * 700] * MANY, "truncate_prompt_tokens": 2})
    ],
    "many vectors": [Ask("/v1/embeddings", {"input": [[5]] * MANY})],
    "many vectors as base64": [
        Ask("/v1/embeddings", {"input": [[5]] * MANY, "encoding_format": "base64"})
    ],
    "many vectors over gRPC": [
        Ask(
            f"{GRPC}/quire.v1.Quire/Embed",
            pb.EmbedRequest(
                input=[pb.EmbedInput(token_ids=pb.TokenIds(ids=[5]))] * MANY
            ).SerializeToString(),
        )
    ],
    "one text to be read with thousands": [
        Ask("/v1/rerank", {"query": "word " * 100, "documents": ["word " * 50] * MANY})
    ],
    "thousands of pairs": [Ask("/v1/score", {"text_1": ["word"] * MANY, "text_2": ["a"] * MANY})],
}


@pytest.mark.parametrize("name", POOLING_CASES)
def test_making_vectors_does_not_block_other_requests(pooling_server: LawServer, name: str) -> None:
    cost = pooling_server.lawful_cost_of(POOLING_CASES[name])
    print(cost.figures())
    assert cost.statuses == [200]


@pytest.mark.parametrize("name", CASES)
def test_preparing_it_does_not_block_other_requests(server: LawServer, name: str) -> None:
    server.lawful_cost_of(CASES[name])


def test_a_long_history_does_not_block_other_requests(server: LawServer) -> None:
    text = "word " * 20_000
    first = {"input": text, "max_output_tokens": 1, "store": True}
    status, stored = server.post(RESPONSES, first)
    assert status == 200, stored
    again = {"input": "more", "previous_response_id": stored["id"], "max_output_tokens": 1}
    cost = server.lawful_cost_of([Ask(RESPONSES, again)])
    assert cost.statuses == [200]
    item = server.get(f"/v1/responses/{stored['id']}/input_items")[1]
    assert b"word word" in item


def test_thousands_of_references_to_a_long_item_do_not_block_other_requests(
    server: LawServer,
) -> None:
    first = {"input": "word " * 20_000, "max_output_tokens": 1, "store": True}
    _, stored = server.post(RESPONSES, first)
    item = f"msg_{stored['id'].removeprefix('resp_')}_i0"
    reference = {"type": "item_reference", "id": item}
    cost = server.lawful_cost_of([Ask(RESPONSES, {"input": [reference] * 16_000})])
    assert cost.statuses == [400]
