"""The acts of the tour: what happens, what is said about it, and what it proved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from dashboard.tour.processes import KEYS, TourError, TourProcesses
from dashboard.tour.streams import Traffic, Watched

AGENTS = 20
FLOOD = 80
LONG_PROMPT_TOKENS = 110_000
_PATIENCE_SECONDS = 30
_LONGEST_TOKEN_ID = 1000
_SYSTEM = "You are one of twenty agents that share these rules. " + " ".join(
    f"Rule {number}: write short functions and test them." for number in range(200)
)
_TASKS = ("Read the failing test", "Write the fix", "Run the linter", "Explain the change")


@dataclass
class Stage:
    """What the acts work with. ``agents`` run until the stage is closed."""

    processes: TourProcesses
    traffic: Traffic
    tasks: list[asyncio.Task[None]]

    def begin(self, work: Awaitable[None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.traffic.close()


@dataclass(frozen=True, slots=True)
class Act:
    """``play`` runs it for so many seconds, and returns a sentence on what was measured."""

    title: str
    text: str
    look: str
    page: str
    play: Callable[[Stage, float], Awaitable[str]]


def _chat(messages: list[dict[str, str]], max_tokens: int) -> dict[str, object]:
    return {"model": "tour", "messages": messages, "max_tokens": max_tokens}


async def _agent(traffic: Traffic, number: int) -> None:
    """One agent: each turn repeats all before it, as agents do."""
    system = {"role": "system", "content": _SYSTEM}
    chance = random.Random(number)
    while True:
        messages = [system]
        for turn in range(6):
            task = _TASKS[turn % len(_TASKS)]
            messages.append({"role": "user", "content": f"Agent {number}, turn {turn}: {task}."})
            body = _chat(list(messages), chance.randrange(60, 200))
            watched = await traffic.stream("/v1/chat/completions", KEYS["alice"], body)
            if watched.status != 200:
                await asyncio.sleep(0.5)  # as a client that backs off
            messages.append({"role": "assistant", "content": f"Done, in turn {turn}."})


async def _agents(stage: Stage, seconds: float) -> str:
    for number in range(AGENTS):
        stage.begin(_agent(stage.traffic, number))
    await asyncio.sleep(seconds)
    with suppress(TimeoutError):  # a fast tour on a busy machine may be ahead of the first answer
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not any(map(_ended, stage.traffic.watched)):
                await asyncio.sleep(0.1)
    done = sum(watched.is_complete for watched in stage.traffic.watched)
    return f"{AGENTS} agents got {done} answers"


async def _flooder(traffic: Traffic, number: int, until: float) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        text = f"Question {number}: " + "tell me everything about this. " * 40
        body = _chat([{"role": "user", "content": text}], 200)
        watched = await traffic.stream("/v1/chat/completions", KEYS["bob"], body)
        if watched.status != 200:
            await asyncio.sleep(0.2)


async def _flood(stage: Stage, seconds: float) -> str:
    before = len(stage.traffic.watched)
    until = asyncio.get_running_loop().time() + seconds
    for number in range(FLOOD):
        stage.begin(_flooder(stage.traffic, number, until))
    await asyncio.sleep(seconds)
    sent = stage.traffic.watched[before:]
    refused = sum(watched.status == 429 for watched in sent)
    return f"{len(sent)} requests in all, {refused} refused with 429 and a Retry-After"


def _running(traffic: Traffic) -> list[Watched]:
    return [each for each in traffic.watched if each.first is not None and not _ended(each)]


def _longest_gap(streams: Iterable[Watched]) -> float:
    return max((each.longest_gap for each in streams), default=0.0)


def _ended(watched: Watched) -> bool:
    return watched.is_complete or bool(watched.error)


async def _long_prompt(stage: Stage, seconds: float) -> str:
    chance = random.Random(110)
    prompt = [chance.randrange(_LONGEST_TOKEN_ID) for _ in range(LONG_PROMPT_TOKENS)]
    stage.traffic.begin_measuring()
    await asyncio.sleep(seconds / 4)
    before = _longest_gap(stage.traffic.watched)
    stage.traffic.begin_measuring()
    body = {"model": "tour", "prompt": prompt, "max_tokens": 50}
    reading = asyncio.ensure_future(stage.traffic.stream("/v1/completions", KEYS["carol"], body))
    try:
        watched = await asyncio.wait_for(asyncio.shield(reading), seconds)
    except TimeoutError:
        watched = await reading
    else:
        await asyncio.sleep(seconds / 3)
    gap = _longest_gap(each for each in stage.traffic.watched if each is not watched)
    if not watched.is_complete:
        raise TourError(f"the long prompt was not answered: {watched.status} {watched.error}")
    return (
        f"{LONG_PROMPT_TOKENS:,} prompt tokens were computed; the longest pause of any other "
        f"stream was {gap * 1e3:.0f} ms ({before * 1e3:.0f} ms before)"
    )


async def _kill(stage: Stage, seconds: float) -> str:
    stage.traffic.begin_measuring()
    streams = _running(stage.traffic)
    pid = stage.processes.kill_engine()
    loop = asyncio.get_running_loop()
    shown = loop.time() + seconds
    give_up = loop.time() + max(seconds, 120.0)
    while loop.time() < give_up and not all(map(_ended, streams)):
        await asyncio.sleep(0.1)
    broken = [each for each in streams if not each.is_complete]
    if broken:
        raise TourError(f"{len(broken)} of {len(streams)} streams broke: {broken[0].error}")
    await asyncio.sleep(max(0.0, shown - loop.time()))
    pause = _longest_gap(streams)
    return (
        f"engine {pid} was killed with {len(streams)} streams running; all of them completed after "
        f"a pause of {pause:.1f} s"
    )


ACTS = (
    Act(
        "Twenty agents share a prefix",
        "Twenty coding agents work with the same 2,000-token instructions. They are computed once; "
        "every turn after that finds them in the prefix cache.",
        "Live: most prompt tokens are cached. Requests: how many of each prompt's tokens were "
        "cached.",
        "/live",
        _agents,
    ),
    Act(
        "One key floods the server",
        "Bob starts 80 clients at once. Sequences wait, and the verdict says why. The agents keep "
        "working.",
        "Live: the verdict and the waiting sequences. Requests: who sent them, and how long they "
        "waited.",
        "/requests",
        _flood,
    ),
    Act(
        "A prompt of 110,000 tokens joins",
        "It is computed in chunks between the tokens of the other streams, so no running stream "
        "stalls. New turns wait until it is done.",
        "Live: time between tokens stays flat. Requests: the long one, and the steps that computed "
        "it.",
        "/live",
        _long_prompt,
    ),
    Act(
        "The engine is killed",
        "kill -9, under full load. The next engine takes over every sequence with its "
        "tokens; clients see a pause and nothing else.",
        "Live: the verdict, a mark on every chart, then tokens again. No stream fails.",
        "/live",
        _kill,
    ),
)
