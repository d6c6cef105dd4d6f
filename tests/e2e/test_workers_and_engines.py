"""API workers with two engines: one engine is killed under streams, then the leading worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
import pytest

from engine.messages import EngineCounters
from tests.e2e.quire_server import QuireServer, engine_sockets, engines_of, until, workers_of
from tests.e2e.test_recovery import deaths
from tests.e2e.test_worker_death import EngineWatcher, request_lines

ENGINES = 2
PROMPTS = 4
GENERATED = "quire_generated_tokens_total"


class Size(NamedTuple):
    """``requests``: for each of the two kills."""

    model: str
    workers: int
    clients: int
    requests: int

    @property
    def arguments(self) -> tuple[str, ...]:
        return (
            *(self.model, f"--max-num-seqs={self.clients}", "--log-format=json"),
            *(f"--api-workers={self.workers}", f"--data-parallel-size={ENGINES}"),
        )


SMALL = Size("simulated:step=8ms,output=100-200", workers=2, clients=12, requests=48)
LARGE = Size("simulated:step=8ms,output=20-60", workers=4, clients=24, requests=5000)
# By API: its route, and the rest of the body for a prompt.
ROUTES: dict[str, tuple[str, Any]] = {
    "chat": (
        "/v1/chat/completions",
        lambda prompt: {
            "messages": [{"role": "user", "content": prompt}],
            "stream_options": {"include_usage": True},
        },
    ),
    "messages": (
        "/v1/messages",
        lambda prompt: {
            "model": "simulated:fast",
            "max_tokens": 4000,
            "messages": [{"role": "user", "content": prompt}],
        },
    ),
    "responses": ("/v1/responses", lambda prompt: {"input": prompt, "store": False}),
}
Question = tuple[str, int]  # an API and the number of a prompt
QUESTIONS: list[Question] = [(api, number) for number in range(PROMPTS) for api in ROUTES]


@dataclass
class Answer:
    """What a client has got of one stream. ``tokens``: as the server counted them at the end."""

    question: Question
    request_id: str = ""
    text: str = ""
    tokens: int = 0
    is_whole: bool = False
    wrong: str = ""

    @property
    def worker(self) -> int:
        """Which worker made the id of the request."""
        return int(self.request_id[4:6], 16)

    def add(self, event: dict[str, Any]) -> None:
        if event.get("error"):
            self.wrong = json.dumps(event)
        usage = event.get("usage")
        match self.question[0]:
            case "chat":
                for choice in event["choices"]:
                    self.text += choice["delta"].get("content") or ""
                if usage:
                    self.tokens = usage["completion_tokens"]
            case "messages":
                self.text += event.get("delta", {}).get("text", "")
                if event["type"] == "message_delta":
                    self.tokens = usage["output_tokens"]
                self.is_whole = event["type"] == "message_stop"
            case "responses":
                if event["type"] == "response.output_text.delta":
                    self.text += event["delta"]
                if event["type"] == "response.completed":
                    self.tokens = event["response"]["usage"]["output_tokens"]
                    self.is_whole = True


@dataclass
class Clients:
    """They note all answers. Each request has a new connection, so any worker may get it."""

    server: QuireServer
    size: Size
    open: list[Answer] = field(default_factory=list)
    done: list[Answer] = field(default_factory=list)
    is_stopping: bool = False

    @property
    def streaming(self) -> list[Answer]:
        return [answer for answer in self.open if answer.text]

    async def ask(self, question: Question) -> Answer:
        api, number = question
        path, body = ROUTES[api]
        asked = {**body(f"Story {number}, please."), "temperature": 0, "stream": True}
        answer = Answer(question)
        self.open.append(answer)
        with contextlib.suppress(httpx.TransportError):  # if its worker is killed
            async with (
                httpx.AsyncClient(base_url=self.server.url, timeout=600) as http,
                http.stream("POST", path, json=asked) as reply,
            ):
                answer.request_id = reply.headers.get("x-request-id", "")
                if reply.status_code != 200:
                    answer.wrong = (await reply.aread()).decode()
                async for line in reply.aiter_lines():
                    if line.startswith("data: {"):
                        answer.add(json.loads(line[6:]))
                    elif line.startswith("data: [DONE]"):
                        answer.is_whole = True
        self.open.remove(answer)
        self.done.append(answer)
        return answer

    async def _ask_again_and_again(self, number: int) -> None:
        while not self.is_stopping:
            await self.ask(QUESTIONS[number % len(QUESTIONS)])
            number += 1

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Ask until the end of the block; what is asked by then is read to its end."""
        self.is_stopping = False
        async with asyncio.TaskGroup() as group:
            for number in range(self.size.clients):
                group.create_task(self._ask_again_and_again(number))
            try:
                yield
            finally:
                self.is_stopping = True

    async def have_got(self, more: int) -> None:
        """Wait for so many more answers."""
        enough = len(self.done) + more
        while len(self.done) < enough:
            # A full pipe would keep log lines in a worker that is about to be killed.
            await asyncio.to_thread(self.server.output)
            await asyncio.sleep(0.1)

    async def are_everywhere(self) -> None:
        """Wait until most have begun to stream, from each of the workers."""
        enough, workers = self.size.clients // 2, self.size.workers
        while len(self.streaming) < enough or len(_workers(self.streaming)) < workers:
            await asyncio.sleep(0.01)


def _workers(answers: list[Answer]) -> set[int]:
    return {answer.worker for answer in answers}


def is_complete(server: QuireServer, workers: int) -> bool:
    """All workers and engines run, and as many workers as asked in a row have all engines."""
    server.output()  # keeps its pipe from filling
    if len(workers_of(server)) < workers or len(engines_of(server)) < ENGINES:
        return False
    answers = [server.get("/health") for _ in range(4 * workers)]
    return all(
        status == 200 and json.loads(body)["engine"]["detail"] == "ready"
        for status, body in answers
    )


def engine_totals(server: QuireServer) -> list[EngineCounters]:
    """Of each engine, idle."""
    found = []
    for socket in engine_sockets(server):
        with contextlib.closing(EngineWatcher(server, socket)) as watcher:
            found.append(watcher.totals())
    return found


def generated_by(engines: list[EngineCounters]) -> int:
    return sum(engine.tokens_generated for engine in engines)


async def complete(server: QuireServer, workers: int) -> None:
    def is_whole() -> bool:
        return is_complete(server, workers)

    await asyncio.to_thread(until, is_whole, 240, "all workers and engines")


async def idle(server: QuireServer) -> None:
    def nothing_runs() -> bool:
        return not server.total("quire_requests_in_progress")

    await asyncio.to_thread(until, nothing_runs, 60, "all requests to have ended")


def counts_are_exact(server: QuireServer, clients: Clients, tokens: int) -> None:
    """Whichever worker answers, the page has what the clients got, and ``tokens`` generated."""
    known = {answer.request_id: answer for answer in clients.done if answer.request_id}
    until(lambda: known.keys() <= ended(server).keys(), 60, "all log lines")
    lines = ended(server)
    assert len(request_lines(server)) == len(lines)  # each once
    for name, answer in known.items():
        assert (lines[name] == "error:worker") != answer.is_whole, (answer, lines[name])
    # A client has no id if its worker died before it answered.
    assert len(lines) - len(known) <= sum(not answer.request_id for answer in clients.done)
    outcomes = Counter(lines.values())
    until(lambda: server.total(GENERATED) == tokens, 30, f"{tokens} generated tokens")
    for _ in range(4 * clients.size.workers):
        page = server.metrics()

        def total(name: str, label: str = "", page: dict[str, float] = page) -> float:
            return sum(v for k, v in page.items() if k.split("{")[0] == name and label in k)

        for outcome, count in outcomes.items():
            assert total("quire_requests_total", f'outcome="{outcome}"') == count
        assert total("quire_requests_total") == outcomes.total()
        assert total("quire_requests_received_total") == outcomes.total()
        assert total("quire_requests_in_progress") == 0
        assert total(GENERATED) == tokens


def ended(server: QuireServer) -> dict[str, str]:
    """How requests ended, by id."""
    return {line["request_id"]: line["outcome"] for line in request_lines(server)}


async def kill_an_engine_and_the_leading_worker(size: Size) -> None:
    with QuireServer(*size.arguments) as server:
        await complete(server, size.workers)
        clients = Clients(server, size)
        first = await asyncio.gather(*map(clients.ask, QUESTIONS))
        assert [answer for answer in first if not answer.is_whole] == []
        expected = {answer.question: answer.text for answer in first}
        assert len(set(expected.values())) >= PROMPTS

        async with clients.at_work():
            await clients.have_got(size.requests // 4)
            await clients.are_everywhere()
            os.kill(engines_of(server)[1], signal.SIGKILL)
            await clients.have_got(size.requests // 2)
            await complete(server, size.workers)
            await clients.have_got(size.requests // 4)
        assert [answer for answer in clients.done if not answer.is_whole] == []
        await idle(server)
        received = sum(answer.tokens for answer in clients.done)
        generated = await asyncio.to_thread(server.total, GENERATED)
        # A step that the engine was sending when it was killed may have reached one worker only.
        assert abs(generated - received) <= size.clients
        print(f"{generated:.0f} tokens generated, {received} received")
        await asyncio.to_thread(counts_are_exact, server, clients, int(generated))
        assert await asyncio.to_thread(server.total, "quire_handovers_total") > 0

        before = generated_by(await asyncio.to_thread(engine_totals, server))
        async with clients.at_work():
            await clients.have_got(size.requests // 4)
            killed = workers_of(server)[0]
            await clients.are_everywhere()
            os.kill(killed, signal.SIGKILL)
            await clients.have_got(size.requests // 2)
            await complete(server, size.workers)
            await clients.have_got(size.requests // 4)
        await idle(server)
        cut = [answer for answer in clients.done if not answer.is_whole]
        assert cut
        assert _workers([answer for answer in cut if answer.request_id]) == {0}
        after = generated_by(await asyncio.to_thread(engine_totals, server))
        generated += after - before
        await asyncio.to_thread(counts_are_exact, server, clients, int(generated))
        print(f"{len(clients.done)} requests, {len(cut)} cut off with their worker")

        before_last = len(clients.done)
        last = [asyncio.create_task(clients.ask(question)) for question in QUESTIONS]
        while len(clients.streaming) + len(clients.done) - before_last < len(QUESTIONS):
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(server.terminate) == 0
        assert all(answer.is_whole for answer in await asyncio.gather(*last))

        for answer in clients.done:
            assert not answer.wrong, answer
            whole = expected[answer.question]
            assert answer.text == (whole if answer.is_whole else whole[: len(answer.text)])
        assert deaths(server) == 2
        assert sum(line["event"] == "drained" for line in server.log_lines()) == size.workers


@pytest.mark.proves("engine-death", "workers")
@pytest.mark.timeout(600)
async def test_an_engine_and_the_leading_worker_are_killed_under_streams() -> None:
    await kill_an_engine_and_the_leading_worker(SMALL)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_ten_thousand_requests_to_four_workers_are_counted_exactly() -> None:
    await kill_an_engine_and_the_leading_worker(LARGE)
