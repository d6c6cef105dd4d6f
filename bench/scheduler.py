"""Measures the cost of planning: scheduler and core with many sequences, without a model.

    python -m bench.scheduler [--json PATH]

``decode``: N sequences run and M wait; one step is schedule() and update() for all running
sequences, in milliseconds. ``prefill``: a new prompt of 32 blocks with each step of 16 decodes.
``core``: decodes through EngineCore with a runner that returns at once, and outputs encoded into
one frame: all of a step's work on the host except the socket. ``queue``: sequences added to a full
engine and aborted, in microseconds each.
Each row has the median and the maximum of its steps; single-threaded, CPU time as well as wall
time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit, encode_frame
from engine.schedule.scheduler import Scheduler
from engine.step.sequence import Sequence
from engine.step.step import ModelInfo, SampledToken, StepPlan, StepResult

BLOCK_SIZE = 16
PROMPT_TOKENS = 64
STEPS = 200


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    running: int
    waiting: int
    unit: str
    median: float
    worst: float
    cpu_mean: float


class InstantRunner:
    """Returns results for every plan at once."""

    def __init__(self, num_kv_blocks: int) -> None:
        self.info = ModelInfo(
            model="none",
            architecture="none",
            dtype="none",
            device="none",
            num_parameters=0,
            vocab_size=32_000,
            max_model_len=8192,
            block_size=BLOCK_SIZE,
            num_kv_blocks=num_kv_blocks,
            kv_cache_bytes=0,
            eos_token_ids=frozenset({0}),
        )

    launch = None

    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult([SampledToken(7) if item.completes else None for item in plan.scheduled])

    def forget(self, uid: int) -> None:
        """Nothing to forget."""


def prompt(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1, 32_000) for _ in range(PROMPT_TOKENS)]


def sequence(uid: int) -> Sequence:
    params = SamplingParams(max_tokens=8000)
    return Sequence(uid, "r", prompt(uid), PROMPT_TOKENS, params)


def filled_scheduler(running: int, waiting: int) -> Scheduler:
    """Create a scheduler with ``running`` decoding sequences and ``waiting`` queued ones."""
    scheduler = Scheduler(
        num_kv_blocks=(running + 1) * 64,
        block_size=BLOCK_SIZE,
        max_model_len=8192,
        max_num_seqs=running,
        max_num_batched_tokens=max(2048, running),
    )
    for uid in range(running + waiting):
        scheduler.add(sequence(uid))
    while scheduler.num_running < running or scheduler.counters.tokens_generated < running:
        one_step(scheduler)
    return scheduler


def one_step(scheduler: Scheduler) -> None:
    for item in scheduler.schedule(0.0).scheduled:
        scheduler.update(item, 7 if item.completes else None, 0.0)


def measured(case: str, running: int, waiting: int, step: Callable[[], object]) -> Row:
    times = []
    cpu = time.process_time()
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    cpu_mean = (time.process_time() - cpu) * 1e3 / STEPS
    return Row(case, running, waiting, "ms/step", statistics.median(times), max(times), cpu_mean)


def bench_decode(running: int, waiting: int) -> Row:
    scheduler = filled_scheduler(running, waiting)
    return measured("decode", running, waiting, lambda: one_step(scheduler))


def bench_prefill(prompt_blocks: int) -> Row:
    """Steps of 16 decodes and a prompt that is new to a full prefix cache: each of its blocks
    evicts one."""
    scheduler = Scheduler(
        num_kv_blocks=1024,
        block_size=BLOCK_SIZE,
        max_model_len=8192,
        max_num_seqs=128,
        max_num_batched_tokens=8192,
    )
    for uid in range(16):
        scheduler.add(sequence(uid))
    tokens = prompt_blocks * BLOCK_SIZE + 1
    uids = itertools.count(1000)

    def step() -> None:
        uid = next(uids)
        new = Sequence(uid, "r", [uid] * tokens, tokens, SamplingParams(max_tokens=1))
        scheduler.add(new)
        one_step(scheduler)
        scheduler.finish(new)

    while scheduler.block_counts().free > 1:
        step()
    return measured("prefill, evicting", 17, 0, step)


def bench_core(running: int, waiting: int) -> Row:
    core = EngineCore(
        InstantRunner((running + 1) * 64),
        max_num_seqs=running,
        max_num_batched_tokens=max(2048, running),
    )
    core.connect(1)
    params = SamplingParams(max_tokens=8000)
    for handle in range(running + waiting):
        core.add(
            1,
            Submit(
                handle=handle,
                request_id="r",
                prompt_token_ids=prompt(handle),
                task=Generate(params),
                arrival_time=0.0,
            ),
        )
    while core.stats().tokens_generated < running:
        core.step()
    return measured("core", running, waiting, lambda: encode_frame(core.step()[1]))


def bench_queue(waiting: int, order: str) -> list[Row]:
    """Time adding sequences to the queue of a full engine, and aborting them in an order."""
    scheduler = filled_scheduler(16, 0)
    sequences = [sequence(uid) for uid in range(100, 100 + waiting)]
    rows = [per_item("queue: add", waiting, lambda: each(scheduler.add, sequences))]
    if order == "random":
        random.Random(1).shuffle(sequences)
    abort = f"queue: abort, {order} order"
    rows.append(per_item(abort, waiting, lambda: each(scheduler.finish, sequences)))
    return rows


def each(verb: Callable[[Sequence], None], sequences: list[Sequence]) -> None:
    for one in sequences:
        verb(one)


def per_item(case: str, count: int, work: Callable[[], object]) -> Row:
    cpu, begin = time.process_time(), time.perf_counter()
    work()
    wall = (time.perf_counter() - begin) * 1e6 / count
    return Row(case, 16, count, "us/each", wall, wall, (time.process_time() - cpu) * 1e6 / count)


def run() -> list[Row]:
    rows = [
        bench_decode(1, 0),
        bench_decode(16, 0),
        bench_decode(64, 0),
        bench_decode(256, 1000),
        bench_decode(1000, 10_000),
        bench_prefill(32),
        bench_core(1, 0),
        bench_core(16, 0),
        bench_core(64, 0),
        bench_core(256, 1000),
    ]
    return rows + bench_queue(10_000, "random") + bench_queue(100_000, "random")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Time the scheduler without a model.")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    options = parser.parse_args(argv)
    rows = run()
    print(f"{'case':<26}{'running':>9}{'waiting':>9}{'median':>10}{'worst':>10}{'cpu':>10}")
    for row in rows:
        figures = f"{row.median:>10.3f}{row.worst:>10.3f}{row.cpu_mean:>10.3f}  {row.unit}"
        print(f"{row.case:<26}{row.running:>9}{row.waiting:>9}{figures}")
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        result = {"bench": "scheduler", **machine, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
