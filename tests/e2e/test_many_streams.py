"""Sixty-four clients at once: every one gets its own complete answer, and nothing leaks."""

from __future__ import annotations

import asyncio

import openai
import pytest

from tests.e2e.quire_server import QuireServer, until

PROMPTS = [
    "Hello!",
    "Tell me a story.",
    "What can you do?",
    "Count from 1 to 10.",
    "Who are you?",
    "What is 12 + 7?",
    "你好",
    "Thanks!",
]


async def ask(client: openai.AsyncOpenAI, prompt: str, *, stream: bool) -> str:
    request = {
        "model": "pocket",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 120,
    }
    if not stream:
        reply = await client.chat.completions.create(**request)  # type: ignore[call-overload]
        return reply.choices[0].message.content or ""
    text, finished = "", False
    async for chunk in await client.chat.completions.create(**request, stream=True):  # type: ignore[call-overload]
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finished = finished or choice.finish_reason is not None
    assert finished
    return text


@pytest.mark.timeout(300)
async def test_64_concurrent_streams_each_equal_their_whole_answer(server: QuireServer) -> None:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    whole = [await ask(client, prompt, stream=False) for prompt in PROMPTS]
    streamed = await asyncio.gather(
        *(ask(client, PROMPTS[i % len(PROMPTS)], stream=True) for i in range(64))
    )
    for i, text in enumerate(streamed):
        assert text == whole[i % len(PROMPTS)]
    await asyncio.to_thread(
        until,
        lambda: (
            server.total("quire_kv_blocks", state="active") == 0
            and server.total("quire_sequences_running") == 0
        ),
        10,
        "all KV blocks to come back",
    )


async def test_a_client_that_leaves_frees_its_blocks(server: QuireServer) -> None:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    gone_before = await asyncio.to_thread(
        server.total, "quire_requests_total", outcome="client_gone"
    )
    stream = await client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": "Tell me a story."}],
        stream=True,
        max_tokens=3000,
        extra_body={"ignore_eos": True},
    )
    seen = 0
    async for _ in stream:
        seen += 1
        if seen == 3:
            break
    assert await asyncio.to_thread(server.total, "quire_sequences_running") == 1
    await stream.close()

    def freed() -> bool:
        return (
            server.total("quire_sequences_running") == 0
            and server.total("quire_kv_blocks", state="active") == 0
            and server.total("quire_requests_total", outcome="client_gone") == gone_before + 1
        )

    await asyncio.to_thread(until, freed, 5, "the leaver's blocks to be freed and counted")


async def test_leaving_a_whole_answer_also_frees_its_blocks(server: QuireServer) -> None:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    task = asyncio.create_task(
        client.chat.completions.create(
            model="pocket",
            messages=[{"role": "user", "content": "Tell me a story."}],
            max_tokens=3500,
            extra_body={"ignore_eos": True},
        )
    )
    await asyncio.to_thread(
        until, lambda: server.total("quire_sequences_running") == 1, 10, "the request to run"
    )
    task.cancel()
    await asyncio.to_thread(
        until, lambda: server.total("quire_sequences_running") == 0, 5, "the request to be aborted"
    )
