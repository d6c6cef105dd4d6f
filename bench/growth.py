"""Measures how cost grows with the batch, the context and the queue.

    python -m bench.growth                     # prints tables, writes the JSON and the plots

``step``: one decode step of the 13M shape (random weights, float32, one thread) by batch size and
by context length; contexts are laid out in the KV cache without being computed. ``planning``: the
scheduler's share of a step, without a model. ``queue``: microseconds per request, for that many
requests waiting at a full engine: accepted, refused (too long), cancelled in random order.
Medians of CPU time, which other load on the machine distorts least. A cost that is linear per step
shows as constant per sequence; a quadratic one is obvious.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib

from bench.report import print_table, write_result
from bench.scheduler import InstantRunner, bench_decode
from bench.shapes import save_shape
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.loop.process import leave_garbage_to_idle_moments
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan

SHAPE = "13m"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
QUEUES = (1_000, 10_000, 100_000)
SHORT_CONTEXT = 128
BLOCK_SIZE = 16
T = TypeVar("T")
IMAGES = Path(__file__).parent.parent / "docs" / "images"


@dataclass(frozen=True)
class StepRow:
    batch: int
    context: int
    milliseconds: float
    microseconds_per_sequence: float


@dataclass(frozen=True)
class PlanningRow:
    running: int
    waiting: int
    milliseconds: float
    cpu_milliseconds: float


@dataclass(frozen=True)
class QueueRow:
    """Microseconds per request."""

    waiting: int
    accept: float
    refuse: float
    cancel: float


def load(batch: int, context: int) -> ModelRunner:
    with tempfile.TemporaryDirectory() as directory:
        save_shape(SHAPE, Path(directory), max_positions=max(CONTEXTS) + 1)
        return load_model_runner(
            EngineConfig(
                model=directory,
                load_format="dummy",
                dtype="float32",
                device="cpu",
                threads=1,
                max_num_seqs=batch,
                block_size=16,
                num_kv_blocks=batch * (-(-context // BLOCK_SIZE) + 1),
            ),
            lambda *_: None,
        )


def decode_step(batch: int, context: int) -> StepPlan:
    """Plan a step that computes each sequence's last token; blocks hold zeros, which take as long
    as other values."""
    width = -(-context // BLOCK_SIZE)
    items = []
    for uid in range(batch):
        sequence = Sequence(
            uid=uid,
            request_id="bench",
            token_ids=[7] * context,
            num_prompt_tokens=context,
            params=SamplingParams(max_tokens=1, temperature=0.0),
            block_table=list(range(uid * width, (uid + 1) * width)),
        )
        items.append(ScheduledSequence(sequence, context - 1, 1, completes=True))
    return StepPlan(tuple(items))


def step_row(batch: int, context: int) -> StepRow:
    runner, plan = load(batch, context), decode_step(batch, context)
    times: list[float] = []
    until = time.process_time() + 2
    while len(times) < 7 or (time.process_time() < until and len(times) < 200):
        begin = time.process_time()
        runner.execute(plan)
        times.append(time.process_time() - begin)
    seconds = statistics.median(times[2:])
    return StepRow(batch, context, seconds * 1e3, seconds * 1e6 / batch)


def planning_row(running: int, waiting: int) -> PlanningRow:
    row = bench_decode(running, waiting)
    return PlanningRow(running, waiting, row.median, row.cpu_mean)


def queue_row(count: int) -> QueueRow:
    core = EngineCore(InstantRunner(1024), max_num_seqs=16, max_num_batched_tokens=2048)
    core.connect(1)
    for handle in range(16):
        core.add(1, submit(handle, 64))
    while core.scheduler.num_running < 16:
        core.step()
    waiting = [submit(handle, 64) for handle in range(100, 100 + count)]
    too_long = [submit(handle, 9000) for handle in range(10**7, 10**7 + count)]
    handles = [each.handle for each in waiting]
    random.Random(1).shuffle(handles)
    accept = per_item(lambda each: core.add(1, each), waiting)
    refuse = per_item(lambda each: core.add(1, each), too_long)
    core.flush()
    cancel = per_item(lambda handle: core.abort(1, [handle]), handles)
    assert core.scheduler.num_waiting == 0
    return QueueRow(count, accept, refuse, cancel)


def submit(handle: int, prompt_tokens: int) -> Submit:
    return Submit(
        handle=handle,
        request_id="bench",
        prompt_token_ids=[1] * prompt_tokens,
        task=Generate(SamplingParams(max_tokens=100)),
        arrival_time=0.0,
    )


def per_item(work: Callable[[T], None], items: list[T]) -> float:
    gc.collect()
    begin = time.process_time()
    for item in items:
        work(item)
    return (time.process_time() - begin) * 1e6 / len(items)


def plot(steps: list[StepRow], planning: list[PlanningRow], queues: list[QueueRow]) -> Path:
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quire"
    from matplotlib import pyplot

    figure, ((batch, context), (plan, queue)) = pyplot.subplots(2, 2, figsize=(10, 7))
    short = [row for row in steps if row.context == SHORT_CONTEXT]
    long = [row for row in steps if row.batch == 1]
    batch.plot([row.batch for row in short], [row.milliseconds for row in short], "o-")
    batch.set(title=f"decode step, context {SHORT_CONTEXT}", xlabel="sequences", ylabel="ms")
    context.plot([row.context for row in long], [row.milliseconds for row in long], "o-")
    context.set(title="decode step, one sequence", xlabel="context, tokens", ylabel="ms")
    plan.plot([row.running for row in planning], [row.milliseconds for row in planning], "o-")
    plan.set(title="planning a step, 10 waiting for each running", xlabel="running", ylabel="ms")
    for name in ("accept", "refuse", "cancel"):
        each = [getattr(row, name) for row in queues]
        queue.plot([row.waiting for row in queues], each, "o-", label=name)
    queue.set(title="a request that waits", xlabel="waiting", ylabel="µs each", ylim=(0, None))
    queue.legend()
    for axes in (batch, context, plan, queue):
        axes.set_xscale("log")
        axes.grid(alpha=0.3)
    for axes in (batch, context, plan):
        axes.set_yscale("log")
    figure.tight_layout()
    path = IMAGES / "growth.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    leave_garbage_to_idle_moments()
    steps = [step_row(batch, SHORT_CONTEXT) for batch in BATCHES]
    steps += [step_row(1, context) for context in CONTEXTS if context != SHORT_CONTEXT]
    print_table([asdict(row) for row in steps])
    planning = [planning_row(running, 10 * running) for running in (1, 10, 100, 1000)]
    print_table([asdict(row) for row in planning])
    queues = [queue_row(count) for count in QUEUES]
    print_table([asdict(row) for row in queues])
    print(plot(steps, planning, queues))
    rows: dict[str, list[Any]] = {"step": steps, "planning": planning, "queue": queues}
    print(
        write_result(
            "growth",
            [{"kind": kind, **asdict(row)} for kind, group in rows.items() for row in group],
            shape=SHAPE,
        )
    )


if __name__ == "__main__":
    main()
