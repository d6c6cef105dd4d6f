"""The clients of the soak: those that check, those that leave, and the operator who injects
faults."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from bench.soak.answers import FailedError, Said, said_by_response, streamed_choices
from bench.soak.http_client import CutError, Reply, begin, leave, request_bytes, send
from bench.soak.ledger import Ledger
from bench.soak.questions import AIMED, AIMED_TOKENS, LEFT, QUESTIONS, SOAKED, Question
from bench.soak.rpc import CALLS, RefusedCallError, RpcClient

KEYS = {SOAKED: "sk-soaked", LEFT: "sk-left", AIMED: "sk-aimed"}
_REFUSED = (429, 503)
_POLL_SECONDS = 0.05
_AFTER_REFUSAL_SECONDS = 0.2
_PATIENCE_SECONDS = 120.0  # for an answer


class RefusedError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Target(Protocol):
    """The server."""

    port: int
    grpc_port: int

    def inject(self, name: str) -> None: ...


Ask = Callable[[], Awaitable[Said]]


def headers(model: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[model]}", **more}


class Load:
    """Mixed load on a server until ``end``."""

    def __init__(self, target: Target, *, seed: int) -> None:
        self.ledger = Ledger()
        self.expected: dict[str, Said] = {}
        self._target = target
        self._dice = random.Random(seed)
        self._end = 0.0
        self._rpc = RpcClient(target.grpc_port, KEYS[SOAKED])
        self._leaving_rpc = RpcClient(target.grpc_port, KEYS[LEFT])
        self._asks = dict(self._all())

    def _all(self) -> Any:
        """Yield name, route and how to send each kind of request."""
        for question in QUESTIONS:
            yield question.name, (question.route, lambda q=question: self._whole(q))
            if question.streamed is not None:
                yield (
                    f"{question.name}, streamed",
                    (question.route, lambda q=question: self._streamed(q)),
                )
        for name, (route, _) in CALLS.items():
            yield name, (route, lambda n=name: self._rpc.ask(n))
        stored = next(one for one in QUESTIONS if one.name == "response, stored")
        yield "response, background", ("responses", lambda: self._background(stored))
        yield "chat, resumed", ("chat_completions", lambda: self._resumed(QUESTIONS[0]))

    # --- asking --------------------------------------------------------------------------------

    async def _post(self, path: str, body: Any, **more: str) -> Reply:
        sent = request_bytes("POST", path, body, headers(SOAKED, **more))
        return _accepted(await send(self._target.port, sent))

    async def _get(self, path: str) -> Reply:
        return await send(self._target.port, request_bytes("GET", path, None, headers(SOAKED)))

    async def _whole(self, question: Question) -> Said:
        return question.whole(await self._post(question.path, question.asked(stream=False)))

    async def _streamed(self, question: Question) -> Said:
        assert question.streamed is not None
        return question.streamed(await self._post(question.path, question.asked(stream=True)))

    async def _background(self, question: Question) -> Said:
        asked = question.asked(stream=False, background=True, store=True)
        response = (await self._post(question.path, asked)).json()
        path = f"{question.path}/{response['id']}"
        while response["status"] in ("queued", "in_progress"):
            await asyncio.sleep(_POLL_SECONDS)
            reply = await self._get(path)
            if reply.status in _REFUSED:  # the store is away
                continue
            if reply.status != 200:
                raise CutError(f"a background response is lost: {reply.status}")
            response = reply.json()
        said = str(response.get("error"))
        if "process ended" in said:
            raise CutError("a background response ended with its worker")
        if "could not be stored" in said:  # a response that is waited for gets this status
            raise RefusedError(503)
        return said_by_response(response)

    async def _resumed(self, question: Question) -> Said:
        """Leave as the stream begins, and read all of it later."""
        more = {"x-quire-resumable": "true"}
        body = question.asked(stream=True)
        sent = request_bytes("POST", question.path, body, headers(SOAKED, **more))
        begun = _accepted(await begin(self._target.port, sent))
        reply = await self._get(f"/v1/streams/{begun.headers['x-quire-stream-id']}")
        if reply.status != 200:
            raise CutError(f"a stream is lost: {reply.status}")
        return streamed_choices(reply)

    # --- clients -------------------------------------------------------------------------------

    async def learn(self) -> None:
        """Send each question once to an idle server. What the model cannot do is left out."""
        for name, (route, ask) in list(self._asks.items()):
            try:
                said = await ask()
            except UnsupportedError:
                del self._asks[name]
                continue
            self.expected[name] = said
            self.ledger.answer(route, name, said, None)

    async def run(
        self, seconds: float, *, clients: int, leaving: int, faults: Faults | None
    ) -> None:
        self._end = time.monotonic() + seconds
        tasks = [self._client(random.Random(self._dice.random())) for _ in range(clients)]
        tasks += [self._leaver(random.Random(self._dice.random())) for _ in range(leaving)]
        if faults is not None:
            tasks += [self._victim(), faults.run(self._target, self._end)]
        await asyncio.gather(*tasks)

    async def close(self) -> None:
        await self._rpc.close()
        await self._leaving_rpc.close()

    async def _client(self, dice: random.Random) -> None:
        names = list(self._asks)
        while time.monotonic() < self._end:
            name = dice.choice(names)
            route, ask = self._asks[name]
            await self._ask(name, route, ask)

    async def _ask(self, name: str, route: str, ask: Ask) -> None:
        ledger = self.ledger
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                ledger.answer(route, name, await ask(), self.expected[name])
        except (RefusedError, RefusedCallError) as error:
            ledger.refused[getattr(error, "status", 503)] += 1
            await asyncio.sleep(_AFTER_REFUSAL_SECONDS)
        except FailedError as error:
            ledger.failed[route] += 1
            ledger.failures.append(f"{name}: {error}")
        except CutError:
            ledger.cut[route] += 1
        except ConnectionRefusedError:
            await asyncio.sleep(_AFTER_REFUSAL_SECONDS)
        except Exception as error:  # whatever a client may see
            ledger.unexpected.append(f"{name}: {error!r}")

    async def _leaver(self, dice: random.Random) -> None:
        while time.monotonic() < self._end:
            self.ledger.left += 1
            if dice.random() < 0.2:
                await self._leaving_rpc.leave(dice.choice(list(CALLS)), dice)
                continue
            question = dice.choice(QUESTIONS)
            asked = question.asked(stream=dice.random() < 0.7, model=LEFT)
            sent = request_bytes("POST", question.path, asked, headers(LEFT))
            try:
                await leave(self._target.port, sent, dice)
            except OSError:
                await asyncio.sleep(_AFTER_REFUSAL_SECONDS)

    async def _victim(self) -> None:
        """Send requests that aimed faults hit."""
        question = QUESTIONS[0]
        asked = question.asked(stream=False, model=AIMED, **{question.limit: AIMED_TOKENS})
        sent = request_bytes("POST", question.path, asked, headers(AIMED))
        while time.monotonic() < self._end:
            try:
                reply = await send(self._target.port, sent)
            except (CutError, OSError):
                await asyncio.sleep(_AFTER_REFUSAL_SECONDS)
                continue
            self.ledger.aimed[str(reply.status)] += 1
            if reply.status != 200:
                await asyncio.sleep(_AFTER_REFUSAL_SECONDS)


class UnsupportedError(Exception):
    """The model has no such task."""


def _accepted(reply: Reply) -> Reply:
    if reply.status == 200:
        return reply
    if reply.status in _REFUSED:
        raise RefusedError(reply.status)
    if reply.status == 500:
        raise FailedError(reply.body)
    if reply.status == 400 and b"embed" in reply.body:
        raise UnsupportedError
    raise RuntimeError(f"{reply.status}: {json.dumps(reply.body.decode(errors='replace'))[:300]}")


class Faults:
    """Makes the server inject one fault of ``names`` after another, one per ``every`` seconds."""

    def __init__(self, names: tuple[str, ...], every: float, *, seed: int) -> None:
        self._names = names
        self._every = every
        self._dice = random.Random(seed)

    async def run(self, target: Target, end: float) -> None:
        """Send each question once in random order, then again."""
        todo: list[str] = []
        # The last one ends before the load does.
        while time.monotonic() + 2 * self._every < end:
            await asyncio.sleep(self._every)
            if not todo:
                todo = self._dice.sample(self._names, len(self._names))
            name = todo.pop()
            try:
                await asyncio.to_thread(target.inject, name)
            except OSError:
                todo.append(name)  # a worker is being replaced
