"""Streams keep their pace while a long prompt arrives, on a device whose costs are known."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean

import pytest

from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.schedule.pacing import PrefillPacer
from engine.step.step import ModelInfo, SampledToken, StepPlan, StepResult

CONNECTION = 1
STREAMS = 8
LONG = 16_384


@dataclass
class PricedRunner:
    """Computes nothing, in a time that passes on its own clock only."""

    step_seconds: float = 0.005
    decode_seconds: float = 0.0002  # for each decode
    prompt_token_seconds: float = 0.00002  # at the beginning of a context; doubles every 8k tokens
    step_seconds_wished: float | None = None
    joining_seconds: float = 0.0  # of any number of prompt tokens, in addition to decodes
    now: float = 0.0
    steps: list[tuple[int, int, float]] = field(default_factory=list)
    launch = None

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            model="priced",
            architecture="priced",
            dtype="none",
            device="none",
            num_parameters=0,
            vocab_size=1000,
            max_model_len=32_768,
            block_size=16,
            num_kv_blocks=8192,
            kv_cache_bytes=0,
            eos_token_ids=frozenset(),
            step_seconds=self.step_seconds_wished,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        chunks = [i for i in plan.scheduled if i.start < i.sequence.num_prompt_tokens]
        decodes = len(plan.scheduled) - len(chunks)
        seconds = self.step_seconds + decodes * self.decode_seconds
        seconds += sum(
            item.num_tokens * self.prompt_token_seconds * (1 + item.start / 8192) for item in chunks
        )
        if chunks and decodes:
            seconds += self.joining_seconds
        self.now += seconds
        self.steps.append((decodes, sum(item.num_tokens for item in chunks), seconds))
        return StepResult([SampledToken(7) if item.completes else None for item in plan.scheduled])

    def forget(self, uid: int) -> None:
        """Nothing is kept."""


class Streams:
    """Sequences that run in an engine, and when each was given its tokens."""

    def __init__(self, runner: PricedRunner, slowdown: float | None) -> None:
        self.runner = runner
        self.core = EngineCore(
            runner,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
            max_decode_slowdown=slowdown,
            clock=lambda: runner.now,
        )
        self.core.connect(CONNECTION)
        self.times: dict[int, list[float]] = {}

    def add(self, handle: int, prompt_tokens: int, max_tokens: int = 10_000) -> None:
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        prompt = [handle + 1] * prompt_tokens
        submit = Submit(
            handle=handle,
            request_id=f"r{handle}",
            prompt_token_ids=prompt,
            task=Generate(params),
            arrival_time=self.runner.now,
        )
        self.core.add(CONNECTION, submit)

    def step(self) -> None:
        output = self.core.step()[CONNECTION]
        for handle in struct.unpack(f"<{len(output.handles) // 8}q", output.handles):
            self.times.setdefault(handle, []).append(self.runner.now)

    def gaps(self, since: float, until: float) -> list[float]:
        """Times per output token of the running streams, between two moments."""
        return [
            after - before
            for handle in range(STREAMS)
            for before, after in zip(self.times[handle], self.times[handle][1:], strict=False)
            if since <= before and after <= until
        ]


def running_streams(slowdown: float | None, **prices: float) -> Streams:
    streams = Streams(PricedRunner(**prices), slowdown)
    for handle in range(STREAMS):
        streams.add(handle, 100)
    for _ in range(50):
        streams.step()
    return streams


def when_a_long_prompt_arrives(streams: Streams) -> tuple[float, float]:
    """The longest gap between tokens before it came, and while it was computed."""
    began = streams.runner.now
    before = streams.gaps(streams.times[STREAMS - 1][5], began)
    streams.add(STREAMS, LONG)
    while STREAMS not in streams.times:
        streams.step()
    return max(before), max(streams.gaps(began, streams.runner.now))


def test_no_gap_doubles_while_a_long_prompt_arrives() -> None:
    streams = running_streams(1.6)
    steps = len(streams.runner.steps)
    before, during = when_a_long_prompt_arrives(streams)
    assert during < 2 * before
    # Each stream was given a token in each of these steps.
    taken = streams.runner.steps[steps:]
    assert all(decodes == STREAMS for decodes, _, _ in taken)
    # The time that was granted is used, once the costs are known.
    used = [seconds / before for _, prompt_tokens, seconds in taken[10:-1] if prompt_tokens > 1]
    assert min(used) > 1.4
    assert len(taken) < LONG / 30


def test_tokens_that_each_cost_more_than_a_step_come_one_by_one() -> None:
    """As those of a small model with a long context do."""
    streams = running_streams(1.6, prompt_token_seconds=0.001)
    before, during = when_a_long_prompt_arrives(streams)
    assert during < 2 * before


@pytest.mark.parametrize("joining_seconds", [0.002, 0.01])
def test_what_joining_costs_is_not_paid_for_single_tokens(joining_seconds: float) -> None:
    """As where decodes alone are a recorded step. 0.01: more than is granted."""
    streams = running_streams(1.6, joining_seconds=joining_seconds)
    steps = len(streams.runner.steps)
    before, during = when_a_long_prompt_arrives(streams)
    assert during < max(1.9 * before, before + 1.6 * joining_seconds)
    assert len(streams.runner.steps) - steps < LONG / 30


def test_without_a_bound_the_budget_alone_decides() -> None:
    streams = running_streams(None)
    before, during = when_a_long_prompt_arrives(streams)
    assert during > 5 * before


def test_a_prompt_alone_is_not_held_back() -> None:
    streams = Streams(PricedRunner(), 1.6)
    streams.add(0, LONG)
    while 0 not in streams.times:
        streams.step()
    assert [tokens for _, tokens, _ in streams.runner.steps] == [2048] * 8


def test_steps_of_prompts_alone_take_as_long_as_they_should() -> None:
    runner = PricedRunner(prompt_token_seconds=0.0001, step_seconds_wished=0.1)
    streams = Streams(runner, 1.6)
    streams.add(0, LONG)
    while 0 not in streams.times:
        streams.step()
    assert [tokens for _, tokens, _ in runner.steps[:3]] == [256, 512, 768]
    assert all(seconds < 0.15 for _, _, seconds in runner.steps)
    assert runner.steps[-2][1] == 256  # tokens after so many others take longer, and this is least


def test_prompts_that_come_at_once_and_fit_into_a_step_are_not_split() -> None:
    runner = PricedRunner(prompt_token_seconds=0.0001, step_seconds_wished=0.1)
    streams = Streams(runner, 1.6)
    for handle in range(5):
        streams.add(handle, 400)
    streams.step()
    assert runner.steps[0][1] == 2000


@pytest.mark.parametrize("long", [1500, 6000])
def test_a_short_prompt_waits_for_two_short_steps(long: int) -> None:
    """The one that runs when it comes, and its own."""
    runner = PricedRunner(prompt_token_seconds=0.0001, step_seconds_wished=0.1)
    streams = Streams(runner, 1.6)
    streams.add(0, long)
    for _ in range(2):
        came = runner.now
        streams.step()
    streams.add(1, 10)
    while 1 not in streams.times:
        streams.step()
    assert streams.times[1][0] - came < 0.25


def test_what_streams_take_alone_is_measured_before_prompts_join_them_and_now_and_then() -> None:
    streams = Streams(PricedRunner(), 1.6)
    streams.add(0, 10)
    streams.step()
    streams.add(STREAMS, LONG)
    while STREAMS not in streams.times:
        streams.step()
    prompt_tokens = [tokens for _, tokens, _ in streams.runner.steps]
    alone = [place for place, tokens in enumerate(prompt_tokens) if not tokens]
    assert alone[:3] == [1, 66, 131]


@pytest.mark.parametrize("slowdown", [1.001, 1.6, 100.0])
def test_prompts_make_progress_with_any_bound(slowdown: float) -> None:
    pacer = PrefillPacer(slowdown)
    assert pacer.budget(4) == 0
    pacer.observe(4, 0, 0.001)
    for _ in range(20):
        tokens = pacer.budget(4)
        assert tokens >= 1
        pacer.observe(4, tokens, 0.001 + tokens * 0.01)


def test_prompt_tokens_that_cost_nothing_are_bounded_by_growth_alone() -> None:
    pacer = PrefillPacer(1.6)
    pacer.observe(4, 0, 0.001)
    tried = [pacer.budget(4)]
    while tried[-1] < 1_000_000:
        pacer.observe(4, tried[-1], 0.001)
        tried.append(pacer.budget(4))
    assert all(after <= 2 * before for before, after in pairwise(tried))
    assert len(tried) < 20


def test_one_slow_step_is_forgotten_soon() -> None:
    pacer = PrefillPacer(1.5)
    for _ in range(10):
        pacer.observe(8, 0, 0.010)
        pacer.observe(8, 1, 0.0101)
        pacer.observe(8, 50, 0.015)
    usual = pacer.budget(8)
    assert usual == pytest.approx(50, abs=1)
    for size in (1, 50):
        pacer.observe(8, size, 0.5)  # the machine did something else
        careful = pacer.budget(8)
        assert 1 <= careful < usual
        pacer.observe(8, careful, 0.010 + careful * 0.0001)
        assert pacer.budget(8) == pytest.approx(usual, abs=1)
        for _ in range(3):
            pacer.observe(8, usual, 0.015)


def test_slow_times_are_learnt_and_forgotten() -> None:
    pacer = PrefillPacer(1.5)
    pacer.observe(8, 0, 0.010)
    for token_seconds, expected in ((0.0001, 50), (0.01, 1), (0.0001, 50)):
        for _ in range(100):
            tokens = pacer.budget(8) or 1
            pacer.observe(8, tokens, 0.010 + tokens * token_seconds)
            if tokens == 1:
                pacer.observe(8, 0, 0.010)
        assert pacer.budget(8) == pytest.approx(expected, abs=2)


# --- the promise, on devices whose first tokens are free, or dear, or dear by the tile ------------

SLOWDOWN = 1.6
DECODE_SECONDS = {8: 0.005, 64: 0.009, 256: 0.020}
RIDGE = 184  # rows that an H200 computes in the time of one
ROW_SECONDS = 25e-6
STAIR, STAIR_SECONDS = 128, 128 * 25e-6


def flat_then_linear(decodes: int, prompt_tokens: int) -> float:
    beyond = max(0, decodes + prompt_tokens - RIDGE) - max(0, decodes - RIDGE)
    return DECODE_SECONDS.get(decodes, 0.0046) + ROW_SECONDS * beyond


def linear(decodes: int, prompt_tokens: int) -> float:
    return 0.005 + 0.0002 * decodes + 50e-6 * prompt_tokens


def stepped(decodes: int, prompt_tokens: int) -> float:
    stairs = -(-(decodes + prompt_tokens) // STAIR) - -(-max(1, decodes) // STAIR)
    return DECODE_SECONDS.get(decodes, 0.0046) + STAIR_SECONDS * stairs


@dataclass
class PacedDevice:
    """Steps of a device with this curve. ``ahead``: each is planned before the one before it has
    been observed. ``noise``: of the times that are observed, as a share."""

    curve: Callable[[int, int], float]
    decodes: int
    ahead: bool
    noise: float = 0.0
    calibrated: bool = False
    granted: list[int] = field(default_factory=list)

    def run(self, steps: int) -> None:
        chance = random.Random(1)

        def taken(decodes: int, prompt_tokens: int) -> float:
            return self.curve(decodes, prompt_tokens) * (1 + self.noise * chance.gauss(0, 1))

        pacer = PrefillPacer(SLOWDOWN)
        for power in range(6, 12) if self.calibrated else ():
            pacer.observe(0, 1 << power, taken(0, 1 << power))
        unknown: list[tuple[int, float]] = []
        for _ in range(steps):
            tokens = min(2048, pacer.budget(self.decodes))
            self.granted.append(tokens)
            unknown.append((tokens, taken(self.decodes, tokens)))
            if len(unknown) > self.ahead:
                pacer.observe(self.decodes, *unknown.pop(0))

    def slowdown(self, tokens: int) -> float:
        return self.curve(self.decodes, tokens) / self.curve(self.decodes, 0)

    @property
    def allowed(self) -> int:
        """The most tokens that keep the promise."""
        return max(n for n in range(2048) if self.slowdown(n) <= SLOWDOWN)


@pytest.mark.parametrize("ahead", [False, True], ids=["waiting", "ahead"])
@pytest.mark.parametrize("decodes", DECODE_SECONDS)
@pytest.mark.parametrize("curve", [flat_then_linear, linear, stepped])
@pytest.mark.parametrize(
    ("calibrated", "noise"),
    [(False, 0.0), (True, 0.0), (True, 0.03)],
    ids=["not calibrated", "calibrated", "noisy"],
)
def test_the_promise_is_kept_after_ten_steps_and_used(
    curve: Callable[[int, int], float], decodes: int, ahead: bool, calibrated: bool, noise: float
) -> None:
    device = PacedDevice(curve, decodes, ahead, noise, calibrated)
    device.run(300)
    later = device.granted[10:]
    assert max(map(device.slowdown, later)) <= 1.2 * SLOWDOWN
    # Steps without prompts, which measure the decodes alone, count as unused.
    assert mean(later) >= 0.8 * device.allowed


def test_a_prompt_whose_tokens_are_ten_times_as_dear_is_slowed_down_within_steps() -> None:
    """As one after a long context is. And faster again when the next prompt begins."""
    pacer = PrefillPacer(SLOWDOWN)
    pacer.observe(8, 0, 0.005)
    for token_seconds in (20e-6, 200e-6, 20e-6):
        slowdowns = []
        for _ in range(60):
            tokens = pacer.budget(8)
            seconds = 0.005 + tokens * token_seconds
            slowdowns.append(seconds / 0.005)
            pacer.observe(8, tokens, seconds)
        assert sum(slowdown > 1.2 * SLOWDOWN for slowdown in slowdowns) <= 3
        assert mean(slowdowns[30:]) > 1 + 0.8 * (SLOWDOWN - 1)
