"""One of two engines dies: the other continues its streams at once, to the same end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx
import pytest

from tests.e2e.quire_server import QuireServer, engines_of, until
from tests.e2e.test_handover import ALL, STORY, Clients, ask_all
from tests.e2e.test_recovery import POISON_MAX_TOKENS, crowd, deaths

TWO = ("--data-parallel-size", "2")
MODEL = "simulated:step=10ms"
STREAMS = 8
TOKENS = 200
# A stream's, while another engine is there; on a machine that may be busy with other tests.
LONGEST_PAUSE = 1.0
LONGEST_BUSY_PAUSE = 5.0


def all_ready(server: QuireServer) -> bool:
    server.output()  # keeps its pipe from filling
    status, body = server.get("/health")
    return status == 200 and json.loads(body)["engine"]["detail"] == "ready"


@contextlib.contextmanager
def two_engines(*arguments: str) -> Iterator[QuireServer]:
    with QuireServer(*arguments, *TWO) as server:
        until(lambda: all_ready(server), 120, "both engines")
        yield server


@dataclass
class Streams:
    """Clients that send one streamed request after another and note each text and each gap."""

    server: QuireServer
    texts: dict[int, set[str]] = field(default_factory=dict)  # by seed
    gaps: list[tuple[float, float]] = field(default_factory=list)  # when they began, seconds
    wrong: list[str] = field(default_factory=list)
    ended: int = 0
    open: int = 0  # that have begun

    async def read(self, http: httpx.AsyncClient, seed: int) -> None:
        asked = {"prompt": f"Story {seed}", "seed": seed, "temperature": 1.0, "stream": True}
        body = {**asked, "max_tokens": TOKENS, "ignore_eos": True}
        text, last = [], None
        async with http.stream("POST", "/v1/completions", json=body) as reply:
            async for line in reply.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                now = time.monotonic()
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk or reply.status_code != 200:
                    self.wrong.append(line)
                    return
                text += [choice["text"] for choice in chunk["choices"]]
                if last is None:
                    self.open += 1
                elif now - last > 0.1:
                    self.gaps.append((last, now - last))
                last = now
        self.open -= 1
        self.ended += 1
        self.texts.setdefault(seed, set()).add("".join(text))

    async def ask(self, number: int) -> None:
        """Ask for ever, with few different seeds."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=120) as http:
            for turn in itertools.count():
                await self.read(http, (number + turn) % 8)

    @contextlib.asynccontextmanager
    async def at_work(self, count: int) -> AsyncIterator[None]:
        asking = [asyncio.create_task(self.ask(number)) for number in range(count)]
        try:
            yield
        finally:
            for each in asking:
                each.cancel()
            for ended in await asyncio.gather(*asking, return_exceptions=True):
                assert isinstance(ended, asyncio.CancelledError), ended


async def kill_one_again_and_again(kills: int) -> list[float]:
    """Return the longest pause of a stream after each kill."""
    pauses = []
    with two_engines(MODEL, "--max-num-seqs", "64") as server:
        streams = Streams(server)
        async with streams.at_work(STREAMS):
            for kill in range(kills):
                async with asyncio.timeout(120):
                    while not await asyncio.to_thread(all_ready, server):
                        await asyncio.sleep(0.1)
                    enough = streams.ended + 4
                    while streams.ended < enough or streams.open < STREAMS // 2:
                        await asyncio.sleep(0.01)
                begin = time.monotonic()
                os.kill(engines_of(server)[kill % 2], signal.SIGKILL)
                async with asyncio.timeout(120):
                    while len(engines_of(server)) < 2 or deaths(server) <= kill:
                        await asyncio.sleep(0.05)
                    enough = streams.ended + 4
                    while streams.ended < enough:
                        await asyncio.sleep(0.01)
                after = [gap for start, gap in streams.gaps if start + gap > begin]
                pauses.append(max(after, default=0.0))
                streams.gaps.clear()
        assert streams.wrong == []
        assert {len(texts) for texts in streams.texts.values()} == {1}
        assert len(set.union(*streams.texts.values())) > 3
        assert server.total("quire_handovers_total") >= 2 * kills
        assert deaths(server) == kills
    return pauses


@pytest.mark.proves("engine-death", "engines")
@pytest.mark.timeout(300)
async def test_streams_of_a_killed_engine_continue_in_the_other_one() -> None:
    pauses = await kill_one_again_and_again(3)
    print("pauses:", " ".join(f"{pause:.3f}" for pause in pauses))
    assert max(pauses) < LONGEST_BUSY_PAUSE


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_twenty_kills_of_one_engine_of_two() -> None:
    pauses = await kill_one_again_and_again(20)
    print("pauses:", " ".join(f"{pause:.3f}" for pause in pauses))
    assert max(pauses) < LONGEST_PAUSE


def kill_under_every_api(kills: int) -> None:
    with crowd(*TWO) as clients:
        server = clients.callers.server
        until(lambda: all_ready(server), 120, "both engines")
        with clients.at_work(8):
            for kill in range(1, kills + 1):
                until(lambda kill=kill: clients.have_got(8 * kill), 120, "answers")  # type: ignore[misc]
                until(lambda: server.total("quire_sequences_running") > 3, 30, "some to run")
                os.kill(engines_of(server)[kill % 2], signal.SIGKILL)
                # The death itself takes a moment to be noticed.
                until(lambda kill=kill: deaths(server) == kill, 120, "its death")  # type: ignore[misc]
                until(
                    lambda: len(engines_of(server)) == 2 and all_ready(server), 120, "both engines"
                )
        assert clients.wrong == []
        died = [line for line in server.log_lines() if line["event"] == "died"]
        assert len(died) == kills, died
        assert server.total("quire_handovers_total") >= kills


@pytest.mark.timeout(300)
def test_every_api_survives_kills_of_one_engine() -> None:
    kill_under_every_api(3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_api_survives_twenty_kills_of_one_engine() -> None:
    kill_under_every_api(20)


@pytest.mark.timeout(900)  # each death is a start of an engine, which a busy machine makes long
async def test_only_the_poison_fails_and_it_costs_few_engines() -> None:
    """As with one engine (``test_recovery``), which takes 3 to 6. Of two workers, the one that did
    not see these deaths refuses the poison as well."""
    fault = f"engine_kill:max_tokens={POISON_MAX_TOKENS}:output=10:times=100"
    with QuireServer(*TWO, "--api-workers", "2", "--fault", fault) as server:
        await asyncio.to_thread(until, lambda: all_ready(server), 120, "both engines")
        expected = await ask_all(server)
        clients = Clients(server)
        asking = [asyncio.ensure_future(ask(clients)) for ask in ALL]
        while clients.chunks < 50 and not any(one.done() for one in asking):
            await asyncio.sleep(0.01)
        poison: dict[str, Any] = {"max_tokens": POISON_MAX_TOKENS, "messages": STORY["messages"]}
        with pytest.raises(anthropic.APIStatusError, match="request_error"):
            async with clients.anthropic.messages.stream(model="pocket", **poison) as stream:
                await stream.until_done()
        assert await asyncio.gather(*asking) == expected
        died = deaths(server)
        assert 3 <= died <= 8
        print(f"{died} engines died")
        for _ in range(20):  # the kernel gives each connection to a worker by chance
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as another:
                reply = await another.post("/v1/messages", json={"model": "pocket", **poison})
            assert reply.status_code == 422, reply.text
        assert deaths(server) == died
        await clients.close()
