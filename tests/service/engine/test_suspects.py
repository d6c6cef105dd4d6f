"""A request that kills engines is found and refused; other requests lose only time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from engine.messages import (
    Abort,
    Admitted,
    Constraint,
    Finished,
    Generate,
    Heartbeat,
    SamplingParams,
    StepPhase,
    Submit,
)
from service.engine.convictions import Convictions
from service.engine.sequence import EngineSequence, Waker
from service.engine.suspects import Suspects, fingerprint
from service.errors import CrashingRequestError
from tests.service.engine.test_link import Ends, finished, generation, stats, step, submission

pytestmark = pytest.mark.integration

POISON = 255
TOKENS = 40
SLOTS = 6


@dataclass
class Running:
    submit: Submit
    made: int = 0  # in this engine
    tokens: list[int] = field(default_factory=list)

    @property
    def is_poison(self) -> bool:
        return POISON in self.submit.prompt_token_ids


def token_at(prompt: list[int], position: int) -> int:
    return zlib.crc32(bytes(prompt), position) % 100


Kills = Callable[[list[Running], list[Running]], bool]
"""Whether the engine dies now, with these running and waiting."""


def _some(running: list[Running], matches: Callable[[Running], bool]) -> bool:
    return any(one.is_poison and matches(one) for one in running)


POISONS: dict[str, Kills] = {
    "in its first step": lambda running, _: _some(running, lambda one: one.made == 0),
    "at its tenth token": lambda running, _: _some(running, lambda one: len(one.tokens) >= 10),
    "with its fifth token in one engine": lambda running, _: _some(
        running, lambda one: one.made >= 4
    ),
    "in the queue": lambda _, waiting: _some(waiting, lambda one: True),
}


class DyingEngine:
    """Serves at the other end of a link until the poison kills it; then there is another one."""

    def __init__(self, ends: Ends, kills: Kills) -> None:
        self._ends = ends
        self._kills = kills
        self.deaths = 0

    async def serve(self) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(ConnectionError):
                await self._live()
            self.deaths += 1
            await self._ends.die()
            await self._ends.come_back()

    async def _live(self) -> None:
        engine = self._ends.engine
        running: list[Running] = []
        waiting: list[Running] = []
        heard: asyncio.Queue[Submit | Abort] = asyncio.Queue()

        async def listen() -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    heard.put_nowait(await engine.hear())

        listening = asyncio.create_task(listen())
        try:
            while True:
                await asyncio.sleep(0.001)
                while not heard.empty():
                    message = heard.get_nowait()
                    assert isinstance(message, Submit)
                    waiting.append(
                        Running(message, tokens=list(generation(message).output_token_ids))
                    )
                if self._kills(running, waiting):
                    return
                admitted = waiting[: SLOTS - len(running)]
                del waiting[: len(admitted)]
                running += admitted
                if admitted:
                    told = [Admitted(one.submit.handle, 1.0, 0) for one in admitted]
                    engine.say(step({}, admitted=told))
                    await engine.writer.drain()
                if self._kills(running, waiting):
                    return
                if running:
                    self._step(running)
                else:
                    engine.say(Heartbeat(stats()))
        finally:
            listening.cancel()

    def _step(self, running: list[Running]) -> None:
        ended: list[Finished] = []
        tokens = {}
        for one in list(running):
            prompt = one.submit.prompt_token_ids
            tokens[one.submit.handle] = token_at(prompt, len(one.tokens))
            one.tokens.append(tokens[one.submit.handle])
            one.made += 1
            if len(one.tokens) == generation(one.submit).params.max_tokens:
                ended.append(finished(one.submit.handle, len(one.tokens)))
                running.remove(one)
        if tokens:
            self._ends.engine.say(step(tokens, finished=ended, phase=StepPhase.DECODE))


def submit(ends: Ends, prompt: list[int], seed: int = 0) -> EngineSequence:
    params = SamplingParams(max_tokens=200 if POISON in prompt else TOKENS, seed=seed)
    [sequence] = ends.link.submit(submission(prompt, params, request_id=f"r{prompt}"), Waker())
    return sequence


async def ended(sequence: EngineSequence) -> None:
    while sequence.finished is None and sequence.failure is None:
        await sequence.waker.wait()


@pytest.mark.parametrize("count", [8, 1])
@pytest.mark.parametrize("name", POISONS)
async def test_only_the_poison_fails_however_it_kills(
    tmp_path: Path, name: str, count: int
) -> None:
    """Beside streams of which some run and some wait, with others arriving all the while."""
    ends = Ends(tmp_path / "engine.sock", restart_timeout=30.0)
    await ends.open()
    engine = DyingEngine(ends, POISONS[name])
    serving = asyncio.create_task(engine.serve())
    prompts = [[1, index] for index in range(count - 1)]
    prompts.insert(random.Random(name).randrange(count), [1, POISON])
    sequences = [submit(ends, prompt) for prompt in prompts]
    async with asyncio.timeout(60):
        while any(sequence.failure is None for sequence in sequences if is_poison(sequence)):
            await asyncio.sleep(0.02)
            sequences.append(submit(ends, [2, *divmod(len(sequences), 200)]))
        for sequence in sequences:
            await ended(sequence)
    for sequence in sequences:
        prompt = sequence.message.prompt_token_ids  # type: ignore[union-attr]
        if is_poison(sequence):
            assert isinstance(sequence.failure, CrashingRequestError)
        else:
            assert sequence.failure is None
            assert sequence.generated == [token_at(prompt, at) for at in range(TOKENS)]
    deaths = engine.deaths
    assert 3 <= deaths <= 12
    for seed in range(3):  # an SDK that tries again, with another seed
        with pytest.raises(CrashingRequestError) as refused:
            submit(ends, [1, POISON], seed)
    assert 400 <= refused.value.status < 500
    after = submit(ends, [3])
    await asyncio.wait_for(ended(after), 20)
    assert after.finished is not None
    assert engine.deaths == deaths
    serving.cancel()
    await ends.close()


def is_poison(sequence: EngineSequence) -> bool:
    return POISON in sequence.message.prompt_token_ids  # type: ignore[union-attr]


async def test_random_deaths_convict_no_sequence(tmp_path: Path) -> None:
    ends = Ends(tmp_path / "engine.sock", restart_timeout=30.0)
    await ends.open()
    dice = random.Random(5)
    engine = DyingEngine(ends, lambda running, _: bool(running) and dice.random() < 0.01)
    serving = asyncio.create_task(engine.serve())
    sequences = []
    async with asyncio.timeout(60):
        while engine.deaths < 12:
            sequences.append(submit(ends, [2, *divmod(len(sequences), 200)]))
            await asyncio.sleep(0.02)
        for sequence in sequences:
            await ended(sequence)
    for sequence in sequences:
        assert sequence.failure is None
        prompt = sequence.message.prompt_token_ids  # type: ignore[union-attr]
        assert sequence.generated == [token_at(prompt, at) for at in range(TOKENS)]
    serving.cancel()
    await ends.close()


# --- the rules ------------------------------------------------------------------------------------


def sequence(prompt: list[int], tokens: int = 0) -> EngineSequence:
    params = SamplingParams(max_tokens=8)
    message = Submit(
        handle=1, request_id="r", prompt_token_ids=prompt, task=Generate(params), arrival_time=0.0
    )
    return EngineSequence(1, len(prompt), 0.0, Waker(), message, generated=[0] * tokens)


def convict(suspects: Suspects, prompt: list[int]) -> None:
    tried = sequence(prompt)
    assert not suspects.engine_died([tried], [], tried=tried, alone=True)
    assert suspects.is_accused(tried)
    assert suspects.engine_died([tried], [], tried=tried, alone=True)


def test_one_death_during_a_trial_or_two_along_with_others_convict_no_sequence() -> None:
    suspects = Suspects()
    tried = sequence([1])
    for alone in (True, False, False):
        assert not suspects.engine_died([tried], [], tried=tried, alone=alone)
    suspects.acquit(tried)
    assert not suspects.is_accused(tried)
    assert not suspects.engine_died([tried], [], tried=tried, alone=True)


def test_a_conviction_is_forgotten_after_an_hour_and_the_oldest_of_too_many() -> None:
    now = 0.0
    suspects = Suspects(convictions=Convictions(clock=lambda: now))
    for prompt in range(1025):
        convict(suspects, [prompt])
    message = sequence([0]).message
    assert message is not None
    suspects.check(message)
    last = msgspec.structs.replace(message, prompt_token_ids=[1024])
    with pytest.raises(CrashingRequestError):
        suspects.check(last)
    now = 3601.0
    suspects.check(last)


def test_a_request_is_known_again_by_what_is_asked_and_nothing_else() -> None:
    message = sequence([1, 2]).message
    assert isinstance(message, Submit)
    replace = msgspec.structs.replace
    same = replace(
        message, handle=9, request_id="other", priority=3, cache_salt="t", arrival_time=7.0
    )
    assert fingerprint(same) == fingerprint(message)

    def changed(**fields: object) -> Submit:
        return replace(message, task=Generate(replace(generation(message).params, **fields)))

    seeded = changed(seed=5)
    assert fingerprint(seeded) == fingerprint(message)
    for other in (
        replace(message, prompt_token_ids=[1, 2, 3]),
        changed(top_k=3),
        changed(constraint=Constraint(grammar="g")),
    ):
        assert fingerprint(other) != fingerprint(message)


def test_every_parameter_of_a_request_can_be_compared() -> None:
    """Whatever the order in which a client names tokens."""
    params = SamplingParams(
        max_tokens=3,
        logit_bias={5: 1.0, 70_000: -2.0, 3: 0.5},
        stop_token_ids=frozenset({70_000, 2, 9}),
        allowed_tokens=b"\x07",
        bad_words_token_ids=((1, 2), (3,)),
        logprobs=1,
        constraint=Constraint(grammar="g"),
    )
    message = sequence([1]).message
    assert isinstance(message, Submit)
    one = msgspec.structs.replace(message, task=Generate(params))
    turned = msgspec.structs.replace(
        params,
        logit_bias=dict(reversed(params.logit_bias.items())),
        stop_token_ids=frozenset([9, 2, 70_000]),
    )
    assert fingerprint(msgspec.structs.replace(message, task=Generate(turned))) == fingerprint(one)
    other = msgspec.structs.replace(params, logit_bias={5: 1.0, 70_000: -2.0, 3: 0.25})
    assert fingerprint(msgspec.structs.replace(message, task=Generate(other))) != fingerprint(one)
