"""Requests from beginning to end through the engine core, as a server would submit them."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.gpu.report import Row
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, StepOutputs, Submit

if TYPE_CHECKING:
    from bench.gpu.engine import Bench


@dataclass(frozen=True)
class Served:
    """Times of all tokens of each request since the first was submitted, in seconds."""

    tokens: list[list[float]]
    seconds: float
    steps: int
    preempted: int


def serve(bench: Bench, lengths: Items[tuple[int, int]], *, slowdown: float | None) -> Served:
    """Submit requests of (tokens of the prompt, tokens of the answer) all at once, and run until
    they are done. Raises RuntimeError if another number of tokens comes."""
    size = bench.machine.size
    core = EngineCore(
        bench.subject.runner,
        max_num_seqs=size(256, 8),
        max_num_batched_tokens=size(8192, 64),
        enable_prefix_caching=False,
        max_decode_slowdown=slowdown,
    )
    if slowdown is not None:
        core.flights.calibrate(size(8192, 64))
    core.connect(0)
    chance = random.Random(0)
    for handle, (asked, answered) in enumerate(lengths):
        params = SamplingParams(max_tokens=answered, temperature=0.6, seed=handle, ignore_eos=True)
        submit = Submit(
            handle=handle,
            request_id="bench",
            prompt_token_ids=chance.choices(range(bench.subject.vocab_size), k=asked),
            task=Generate(params),
            arrival_time=time.monotonic(),
        )
        core.add(0, submit)
    times: list[list[float]] = [[] for _ in lengths]
    begin, steps, preempted = time.perf_counter(), 0, 0
    while core.has_work:
        outputs: StepOutputs = core.step()[0]
        now = time.perf_counter() - begin
        for handle in np.frombuffer(outputs.handles, "<i8").tolist():
            times[handle].append(now)
        steps += 1
        preempted += len(outputs.preempted)
    if [len(each) for each in times] != [answered for _, answered in lengths]:
        raise RuntimeError("other numbers of tokens came than were asked for")
    return Served(times, time.perf_counter() - begin, steps, preempted)


def burst(bench: Bench, streams: int, asked: int, answered: int) -> Row:
    """Measure requests of one size that come together, with prompts paced as a server paces them.
    ``of_floor``: prompts at the product rate, then each token at its floor."""
    size = bench.machine.size
    lengths = [(size(asked, 20), size(answered, 3))] * size(streams, 3)
    served = serve(bench, lengths, slowdown=bench.subject.slowdown)
    subject, ceilings = bench.subject, bench.machine.ceilings
    floor = ceilings.floor(computed=streams * subject.prefill_operations(asked))
    average = [asked + answered // 2] * streams
    floor += answered * subject.decode_floor(average, ceilings)
    each = [(token[-1] - token[0]) / (len(token) - 1) for token in served.tokens]
    return {
        "tokens_s": streams * answered / served.seconds,
        "tpot_ms": statistics.median(each) * 1e3,
        "ttft_ms": statistics.median(token[0] for token in served.tokens) * 1e3,
        "s": served.seconds,
        "floor_s": floor,
        "of_floor": floor / served.seconds,
        "steps": served.steps,
        "preempted": served.preempted,
    }


def nano(bench: Bench, sequences: int = 256) -> Row:
    """Run the workload of nano-vllm's benchmark: 100 to 1024 tokens in and out, at random, all
    submitted at once, without pacing."""
    chance, size = random.Random(0), bench.machine.size
    low, high = size(100, 2), size(1024, 9)
    lengths = [
        (chance.randint(low, high), chance.randint(low, high)) for _ in range(size(sequences, 4))
    ]
    served = serve(bench, lengths, slowdown=None)
    answered = sum(tokens for _, tokens in lengths)
    return {
        "tokens_s": answered / served.seconds,
        "tokens": answered,
        "s": served.seconds,
        "steps": served.steps,
        "preempted": served.preempted,
    }
