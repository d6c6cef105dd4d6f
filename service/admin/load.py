"""Load runs: the server sends requests to itself, as a separate tenant, at a given rate."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from observability.admin_api import (
    MAX_LOAD_CONCURRENCY,
    MAX_LOAD_RATE,
    MAX_LOAD_SECONDS,
    LoadRun,
)
from service.admin.problem import ProblemError, invalid
from service.records.recent import quantiles
from service.telemetry.record import RequestRecord

# For requests still running when the last one has been sent.
_PATIENCE_SECONDS = 60.0

_WORDS = (
    *("river", "stone", "market", "window", "seven", "paper", "garden", "light", "copper"),
    *("morning", "bridge", "winter", "letter", "harbour", "engine", "mountain", "silver", "road"),
)


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """``shared_words``: at the beginning of every prompt of a run, the same in all; then ``words``
    that differ."""

    help: str
    words: int
    output_tokens: int
    shared_words: int = 0


LOAD_PROFILES = {
    "chat": LoadProfile("short questions, answers of 64 tokens", 24, 64),
    "agents": LoadProfile("a long shared prefix, answers of 48 tokens", 24, 48, 400),
    "long-prompts": LoadProfile("prompts of 700 words, answers of 16 tokens", 700, 16),
    "long-answers": LoadProfile("short prompts, answers of 256 tokens", 16, 256),
}


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``POST /admin/v1/load`` takes. ``rate``: requests per second, arriving at random;
    ``concurrency``: most in flight."""

    profile: str = "chat"
    rate: Annotated[float, Meta(gt=0, le=MAX_LOAD_RATE)] = 1.0
    seconds: Annotated[float, Meta(gt=0, le=MAX_LOAD_SECONDS)] = 30.0
    concurrency: Annotated[int, Meta(ge=1, le=MAX_LOAD_CONCURRENCY)] = 32


Send = Callable[[bytes], Awaitable[RequestRecord | None]]
"""Serves one request body and returns its record when it has ended."""


@dataclass(slots=True)
class _Tally:
    plan: LoadPlan
    started: float
    seed: int = field(default_factory=lambda: random.getrandbits(32))
    began: float = field(default_factory=time.monotonic)
    lasted: float | None = None
    state: str = "running"
    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    tokens_out: int = 0
    # Sorted, so that a quantile costs nothing.
    ttft: list[float] = field(default_factory=list)
    itl: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def add(self, record: RequestRecord) -> None:
        self.ended[record.outcome or "client_gone"] += 1
        self.tokens_out += record.output_tokens
        received, first, last = (
            record.received_time,
            record.first_token_time,
            record.last_token_time,
        )
        if first is None or last is None or record.ended_time is None:
            return
        bisect.insort(self.ttft, first - received)
        bisect.insort(self.total, record.ended_time - received)
        if record.output_tokens > 1:
            bisect.insort(self.itl, max(0.0, last - first) / (record.output_tokens - 1))

    def finish(self, state: str) -> None:
        self.state, self.lasted = state, time.monotonic() - self.began

    def result(self) -> LoadRun:
        plan = self.plan
        return LoadRun(
            profile=plan.profile,
            rate=plan.rate,
            seconds=plan.seconds,
            concurrency=plan.concurrency,
            started=self.started,
            state=self.state,
            elapsed=time.monotonic() - self.began if self.lasted is None else self.lasted,
            sent=self.sent,
            ended=dict(self.ended),
            tokens_out=self.tokens_out,
            ttft=quantiles(self.ttft),
            itl=quantiles(self.itl),
            total=quantiles(self.total),
        )


class LoadRuns:
    """At most one at a time; the last one's result is kept. ``send`` serves a request; ``model``:
    the name to request."""

    def __init__(self, send: Send, model: str) -> None:
        self._send = send
        self._model = model
        self._tally: _Tally | None = None
        self._task: asyncio.Task[None] | None = None

    def last(self) -> LoadRun | None:
        """Return the run in progress or else the last one."""
        return None if self._tally is None else self._tally.result()

    def start(self, plan: LoadPlan) -> LoadRun:
        """Start a run. Raises ProblemError."""
        if plan.profile not in LOAD_PROFILES:
            names = ", ".join(LOAD_PROFILES)
            raise invalid(f"'profile' must be one of {names}.", "profile")
        if self._task is not None and not self._task.done():
            raise ProblemError(
                409,
                "running",
                "A load run is in progress; wait until it ends, or stop it.",
            )
        self._tally = _Tally(plan, time.time())
        self._task = asyncio.create_task(self._run(self._tally), name="load-run")
        return self._tally.result()

    async def stop(self) -> LoadRun | None:
        """Stop the run in progress: its requests are cancelled."""
        if self._task is not None and self._tally is not None and not self._task.done():
            self._tally.finish("stopped")
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        return self.last()

    async def _run(self, tally: _Tally) -> None:
        plan, loop = tally.plan, asyncio.get_running_loop()
        places = asyncio.Semaphore(plan.concurrency)
        tasks: set[asyncio.Task[None]] = set()
        due = loop.time()
        end = due + plan.seconds
        try:
            for number in itertools.count():
                due += random.expovariate(plan.rate)
                if due >= end:
                    break
                await asyncio.sleep(max(0.0, due - loop.time()))
                async with asyncio.timeout_at(end):
                    await places.acquire()
                tally.sent += 1
                task = asyncio.create_task(self._one(tally, number, places), name="load-request")
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await _ended(tasks)
            tally.finish("done")
        except TimeoutError:  # every place was taken until the end
            await _ended(tasks)
            tally.finish("done")
        finally:
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, tally: _Tally, number: int, places: asyncio.Semaphore) -> None:
        try:
            body = request_body(tally.plan, tally.seed, number, self._model)
            record = await self._send(body)
            if record is not None:
                tally.add(record)
        finally:
            places.release()


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for the tasks, but not forever."""
    if tasks:
        await asyncio.wait(tuple(tasks), timeout=_PATIENCE_SECONDS)


def request_body(plan: LoadPlan, seed: int, number: int, model: str) -> bytes:
    """Return the body of a run's request ``number``, from 0. ``seed``: the run's; two runs with
    different seeds share no prompts, or the second would measure the first one's prefix cache."""
    profile = LOAD_PROFILES[plan.profile]
    shared = random.Random(seed).choices(_WORDS, k=profile.shared_words)
    own = random.Random(f"{seed} {number}").choices(_WORDS, k=profile.words)
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "user", "content": " ".join([*shared, f"{seed:08x}-{number}", *own])}
        ],
        "max_tokens": profile.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    return msgspec.json.encode(body)
