"""A seed always gives the same tokens, regardless of other requests and interruptions."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.e2e.quire_server import QuireServer

SEEDED: dict[str, Any] = {
    "model": "pocket",
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "temperature": 1.0,
    "seed": 20260,
    "max_tokens": 200,
    "extra_body": {"ignore_eos": True, "return_token_ids": True},
}


async def tokens(client: openai.AsyncOpenAI, **changes: Any) -> list[int]:
    reply = await client.chat.completions.create(**{**SEEDED, **changes})
    choice: Any = reply.choices[0]
    return list(choice.token_ids)


def connect(server: QuireServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)


@pytest.mark.timeout(240)
async def test_a_seed_gives_the_same_tokens_in_a_batch_after_preemption_and_after_a_restart(
    server: QuireServer,
) -> None:
    alone = await tokens(connect(server))
    assert len(alone) == 200
    others = [tokens(connect(server), seed=i, temperature=0.5 + i / 10) for i in range(15)]
    batched, *mates = await asyncio.gather(tokens(connect(server)), *others)
    assert batched == alone
    assert all(mate != alone for mate in mates)

    # A KV cache for a few sequences only, so that sixteen must push each other out.
    restarted = QuireServer("--num-kv-blocks", "48", "--max-model-len", "512")
    with restarted:
        again = await asyncio.gather(
            *(tokens(connect(restarted)) for _ in range(8)),
            *(tokens(connect(restarted), seed=i) for i in range(8)),
        )
        assert restarted.total("quire_preemptions_total") > 0
    assert again[:8] == [alone] * 8
