"""When an engine dies, its requests pause and continue in the next one to the same end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.e2e.quire_server import QuireServer, engine_of, until

pytestmark = pytest.mark.one_process

CHAT = "/v1/chat/completions"
STORY: dict[str, Any] = {
    "model": "pocket",
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "max_tokens": 400,
    "temperature": 0,
}
COLOURS = {
    "type": "array",
    "items": {"enum": ["red", "green", "blue"]},
    "minItems": 120,
    "maxItems": 150,
}
SCHEMA = {
    "type": "object",
    "properties": {"colours": COLOURS},
    "required": ["colours"],
    "additionalProperties": False,
}
FOREVER = {"ignore_eos": True}
BEGUN = "quire_time_to_first_token_seconds_count"

Ask = Callable[["Clients"], Awaitable[Any]]


class Near(float):
    """Equal to what is within a thousandth: the last bits depend on the batch's shape."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1e-3

    __hash__ = None  # type: ignore[assignment]  # approximate equality cannot be hashed


class Clients:
    """The official SDKs, and plain HTTP, on one server. ``chunks`` counts what streams gave."""

    def __init__(self, server: QuireServer) -> None:
        self.openai = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="unused", max_retries=0
        )
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=server.url, api_key="unused", max_retries=0
        )
        self.http = httpx.AsyncClient(base_url=server.url, timeout=600)
        self.chunks = 0

    async def close(self) -> None:
        await asyncio.gather(self.openai.close(), self.anthropic.close(), self.http.aclose())


async def streamed(clients: Clients) -> Any:
    """Four seeded choices, with what each token's probability was."""
    texts: dict[int, str] = {}
    logprobs: dict[int, list[tuple[str, Near]]] = {}
    ends = {}
    stream = await clients.openai.chat.completions.create(
        **{**STORY, "temperature": 1.0},
        n=4,
        seed=7,
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=FOREVER,
    )
    async for chunk in stream:
        clients.chunks += 1
        if chunk.usage:
            ends["usage"] = chunk.usage.model_dump(exclude={"prompt_tokens_details"})
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.logprobs and choice.logprobs.content:
                logprobs.setdefault(choice.index, []).extend(
                    (entry.token, Near(entry.logprob)) for entry in choice.logprobs.content
                )
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    return texts, logprobs, ends


async def whole(clients: Clients) -> Any:
    reply = await clients.openai.chat.completions.create(
        **{**STORY, "frequency_penalty": 0.5}, extra_body=FOREVER
    )
    return reply.choices[0].message.content, reply.choices[0].finish_reason


async def constrained(clients: Clients) -> Any:
    reply = await clients.openai.chat.completions.create(
        **{**STORY, "max_tokens": 1500, "temperature": 1.0},
        seed=3,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "colours", "schema": SCHEMA, "strict": True},
        },
    )
    colours = json.loads(reply.choices[0].message.content or "")["colours"]
    assert len(colours) >= 120
    return colours


async def messages(clients: Clients) -> Any:
    async with clients.anthropic.messages.stream(
        model="pocket",
        max_tokens=400,
        messages=STORY["messages"],
        extra_body={"temperature": 0, **FOREVER},
    ) as stream:
        async for _ in stream:
            clients.chunks += 1
        final = await stream.get_final_message()
        return [block.model_dump() for block in final.content], final.stop_reason


async def completed(clients: Clients) -> Any:
    """With logprobs of the prompt, and a stop string to look out for."""
    asked = {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, **FOREVER}
    shown = {"echo": True, "logprobs": 1, "stop": ["no such text"]}
    reply = await clients.http.post("/v1/completions", json={**asked, **shown})
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["text"], len(choice["logprobs"]["tokens"]), choice["finish_reason"]


async def searched(clients: Clients) -> Any:
    reply = await clients.http.post(
        "/v1/completions",
        json={
            **{"prompt": "Once upon a time", "max_tokens": 120, "n": 2},
            **{"use_beam_search": True, "temperature": 0},
        },
    )
    assert reply.status_code == 200, reply.text
    return [choice["text"] for choice in reply.json()["choices"]]


ALL: tuple[Ask, ...] = (streamed, whole, constrained, messages, completed, searched)


def request_lines(server: QuireServer, count: int) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]] | None:
        lines = [line for line in server.log_lines() if line["event"] == "request"]
        return lines if len(lines) >= count else None

    return until(found, 10, "the log lines of all requests")


async def ask_all(server: QuireServer) -> list[Any]:
    clients = Clients(server)
    try:
        return await asyncio.gather(*(ask(clients) for ask in ALL))
    finally:
        await clients.close()


# Four choices, and four requests of one; the beam search may be between two steps.
HANDED_OVER = 8


async def ask_all_while_the_engine_fails(server: QuireServer, number: signal.Signals) -> list[Any]:
    """The answers to requests that had all begun, and none ended, when the engine got ``number``.

    On a busy machine one may have ended before another began: then all are asked again.
    """
    one_round = server.total(BEGUN)
    for _ in range(5):
        clients = Clients(server)
        before = server.total(BEGUN)
        handed_over = server.total("quire_handovers_total")
        engine = engine_of(server)
        try:
            asking = [asyncio.ensure_future(ask(clients)) for ask in ALL]
            async with asyncio.timeout(60):
                while (
                    await asyncio.to_thread(server.total, BEGUN) < before + one_round
                    or clients.chunks < 10
                ):
                    await asyncio.sleep(0.01)
            underway = not any(asked.done() for asked in asking)
            if underway:
                os.kill(engine, number)
            answers = await asyncio.gather(*asking)
            # An answer that was complete in the server may not have been complete here.
            if underway and server.total("quire_handovers_total") >= handed_over + HANDED_OVER:
                return answers
        finally:
            await clients.close()
    raise AssertionError("in five rounds, one request always ended before the last had begun")


@pytest.mark.proves("engine-death", "process")
@pytest.mark.timeout(300)
async def test_every_request_continues_in_the_next_engine_to_the_same_end() -> None:
    with QuireServer() as server:
        expected = await ask_all(server)
        counted = server.total("quire_handovers_total")
        assert counted == 0
        assert await ask_all_while_the_engine_fails(server, signal.SIGKILL) == expected
        # From then on, all of them are counted.
        until(lambda: len(request_lines(server, 12)) % 6 == 0, 10, "the log lines of whole rounds")
        lines = request_lines(server, 12)
        others = [line["handovers"] > 0 for line in lines if line["choices"] != 2]
        assert all(others[-5:])
        assert {line["outcome"] for line in lines} == {"stop", "length"}


@pytest.mark.timeout(300)
async def test_an_engine_that_hangs_is_ended_and_its_requests_go_on() -> None:
    with QuireServer("--engine-hang-timeout", "8") as server:
        expected = await ask_all(server)
        assert await ask_all_while_the_engine_fails(server, signal.SIGSTOP) == expected
        events = [line["event"] for line in server.log_lines()]
        assert events.count("is unresponsive, killing it") >= 1
