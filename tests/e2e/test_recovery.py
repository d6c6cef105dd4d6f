"""Engines die again and again, and clients see pauses: no error, and no text but the right one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anthropic
import grpc
import httpx
import openai
import pytest

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.e2e.quire_server import QuireServer, engine_of, free_port, until
from tests.e2e.test_every_api import APIS, PERSON, TWO_CITIES, Question
from tests.e2e.test_handover import ALL, FOREVER, STORY, Clients, ask_all
from tests.service.grpc.clients import put_together

pytestmark = pytest.mark.one_process

# The mark of requests that engines die of, so that a client's retry has the same effect.
POISON_MAX_TOKENS = 777
QUESTIONS = {
    "tools": Question(TWO_CITIES, tools=True),
    "form": Question("Invent a person.", form=PERSON),
    "thinking": Question("Hello!", thinking=True),
}


class Callers:
    """Clients of one server, to be shared by threads."""

    def __init__(self, server: QuireServer, grpc_port: int) -> None:
        self.server = server
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
        self.http = httpx.Client(base_url=server.url, timeout=120)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self.grpc = QuireStub(self._channel)

    def close(self) -> None:
        self.openai.close()
        self.http.close()
        self._channel.close()


Call = Callable[[Callers], Any]


def by_api(api: str, question: Question, stream: bool) -> Call:
    def call(callers: Callers) -> Any:
        answer = APIS[api](callers.server, question, stream)
        return answer.ended, answer.reasoning, answer.text, answer.calls, answer.output_tokens

    return call


def seeded(seed: int) -> Call:
    def call(callers: Callers) -> Any:
        stream = callers.openai.chat.completions.create(
            **{**STORY, "temperature": 1.0, "max_tokens": 250},
            seed=seed,
            stream=True,
            extra_body=FOREVER,
        )
        choices = [chunk.choices[0] for chunk in stream if chunk.choices]
        return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason

    return call


def completed(seed: int) -> Call:
    def call(callers: Callers) -> Any:
        asked = {"prompt": "Once upon a time", "max_tokens": 200, "seed": seed, "n": 2}
        reply = callers.http.post("/v1/completions", json={**asked, "temperature": 0.8})
        assert reply.status_code == 200, reply.text
        return [(choice["text"], choice["finish_reason"]) for choice in reply.json()["choices"]]

    return call


def remote(seed: int) -> Call:
    def call(callers: Callers) -> Any:
        request = pb.GenerateRequest(
            text="Once upon a time",
            max_tokens=150,
            sampling=pb.Sampling(seed=seed, temperature=1.0),
        )
        [said] = put_together(callers.grpc.Generate(request)).choices
        return said.text, said.tokens

    return call


def calls() -> dict[str, Call]:
    """Every API; greedy, seeded, constrained, with tools; streamed and whole."""
    asked = {
        f"{api} {name} {'streamed' if stream else 'whole'}": by_api(api, question, stream)
        for (api, (name, question), stream) in itertools.product(
            APIS, QUESTIONS.items(), (True, False)
        )
    }
    for seed in range(4):
        asked |= {
            f"seeded {seed}": seeded(seed),
            f"completed {seed}": completed(seed),
            f"grpc {seed}": remote(seed),
        }
    return asked


@dataclass
class Crowd:
    """Run ``count`` clients that send one request after another until stopped."""

    callers: Callers
    expected: dict[str, Any]
    wrong: list[str] = field(default_factory=list)
    answers: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def have_got(self, answers: int) -> bool:
        """As many, or one that ends the test."""
        return self.answers >= answers or bool(self.wrong)

    def ask(self, number: int) -> None:
        todo = list(calls().items())
        random.Random(number).shuffle(todo)
        for name, call in itertools.cycle(todo):
            if self.stop.is_set():
                return
            try:
                told = call(self.callers)
            except Exception as error:  # whatever a client may see
                self.wrong.append(f"{name}: {error!r}")
                continue
            self.answers += 1
            if told != self.expected[name]:
                self.wrong.append(f"{name}: {told!r} instead of {self.expected[name]!r}")

    @contextlib.contextmanager
    def at_work(self, count: int) -> Iterator[None]:
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            asking = [pool.submit(self.ask, number) for number in range(count)]
            try:
                yield
            finally:
                self.stop.set()
        for each in asking:
            each.result()


@contextlib.contextmanager
def crowd(*arguments: str) -> Iterator[Crowd]:
    """On a server that is not disturbed until its answers are known."""
    port = free_port()
    with QuireServer("--grpc-port", str(port), *arguments) as server:
        callers = Callers(server, port)
        try:
            yield Crowd(callers, {name: call(callers) for name, call in calls().items()})
        finally:
            callers.close()


def deaths(server: QuireServer) -> int:
    return server.output().count('"event":"died"')


def kill_engine(server: QuireServer) -> int:
    """Which one it was. The server has noticed its death: until then, another kill would hit the
    same process, and the metrics are those of the dead one."""
    before = deaths(server)
    engine = engine_of(server)
    os.kill(engine, signal.SIGKILL)
    until(lambda: deaths(server) > before, 30, "its death to be noticed")
    return engine


@pytest.mark.timeout(300)
def test_engines_that_are_killed_again_and_again_are_pauses() -> None:
    kills, killed = 3, set[int]()
    with crowd() as clients:
        server = clients.callers.server
        with clients.at_work(8):
            for kill in range(1, kills + 1):
                until(partial(clients.have_got, 8 * kill), 60, "answers")
                until(lambda: server.total("quire_sequences_running") > 5, 30, "most to run")
                killed.add(kill_engine(server))
        assert clients.wrong == []
        assert len(killed) == kills
        assert server.total("quire_handovers_total") >= 3 * kills


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_in_three_minutes_under_32_streams() -> None:
    kills, seconds, streams = 20, 180.0, 32
    killed = set[int]()
    dice = random.Random(1)
    with crowd() as clients:
        server = clients.callers.server
        with clients.at_work(streams):
            begin = time.monotonic()
            for kill in range(kills):
                # At random moments, whatever the server is doing: a condition would choose them.
                time.sleep(
                    max(0.0, begin + (kill + dice.random()) * seconds / kills - time.monotonic())
                )
                killed.add(kill_engine(server))
            until(lambda: server.get("/health/ready")[0] == 200, 120, "readiness")
            until(partial(clients.have_got, clients.answers + streams), 120, "answers")
        assert clients.wrong == []
        assert len(killed) == kills
        handovers = server.total("quire_handovers_total")
        print(f"{clients.answers} answers, {kills} kills, {handovers:.0f} sequences handed over")
        assert handovers > kills


@pytest.mark.timeout(300)
async def test_only_the_poison_fails_and_its_retries_kill_nothing() -> None:
    """At its tenth token, together with greedy, seeded and constrained streams, tools and a beam
    search. (``tests/service/engine/test_suspects.py`` has other poisons.)"""
    poison = f"engine_kill:max_tokens={POISON_MAX_TOKENS}:output=10:times=100"
    with QuireServer("--fault", poison) as server:
        expected = await ask_all(server)
        clients = Clients(server)
        asking = [asyncio.ensure_future(ask(clients)) for ask in ALL]
        async with asyncio.timeout(60):
            while clients.chunks < 50:
                await asyncio.sleep(0.01)
        poisonous = {"max_tokens": POISON_MAX_TOKENS, "messages": STORY["messages"]}

        async def be_poisoned() -> None:
            async with clients.anthropic.messages.stream(model="pocket", **poisonous) as stream:
                await stream.until_done()

        with pytest.raises(anthropic.APIStatusError) as caught:
            await be_poisoned()
        body: Any = caught.value.body
        assert body["error"]["type"] == "invalid_request_error"
        assert await asyncio.gather(*asking) == expected
        died = deaths(server)
        assert 3 <= died <= 6
        async with clients.anthropic.with_options(max_retries=2) as trying:
            for _ in range(3):
                with pytest.raises(anthropic.UnprocessableEntityError):
                    await trying.messages.create(model="pocket", **poisonous)
        assert deaths(server) == died
        await clients.close()
