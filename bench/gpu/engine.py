"""Whole engine steps compared with the time that reading weights and contexts must take."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.company import PLAIN, Chunk, Company, spread
from bench.gpu.model import Subject, load, shape_of
from bench.gpu.report import Report, Row
from bench.gpu.serving import burst, nano
from bench.gpu.timing import Machine, counted_waits
from engine.messages import SamplingParams
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan

TOP_P: Final = SamplingParams(
    max_tokens=100_000, temperature=0.6, top_p=0.9, seed=1, ignore_eos=True
)
# One request among plain ones, by what it requires.
SPECIAL: Final[dict[str, SamplingParams]] = {
    "logprobs": SamplingParams(max_tokens=100_000, seed=2, logprobs=5, ignore_eos=True),
    "penalties": SamplingParams(max_tokens=100_000, presence_penalty=1.5, ignore_eos=True),
    "grammar": PLAIN,
}
# The kernel that begins each steady step.
_FIRST_KERNEL: Final = "_advance"


@dataclass(frozen=True)
class Bench:
    subject: Subject
    machine: Machine

    def company(self, batch: int, context: int, **options: Any) -> Company:
        size = self.machine.size
        contexts = spread(size(batch, min(batch, 3)), size(context, 20), self.subject.block_size)
        return Company(self.subject, contexts, **options)

    def timed(self, company: Company) -> tuple[float, float]:
        """Return the median seconds of a step that is launched ahead, and how often the host waits
        for the device in one."""
        size = self.machine.size
        company.ahead(size(8, 1))
        steps = size(64, 2)
        taken = statistics.median(company.ahead(steps))
        with counted_waits(self.machine.device) as waits:
            company.ahead(size(16, 1))
        company.leave()
        return taken, waits.count / (size(16, 1) + 1)

    def against(self, taken: float, floor: float, batch: int, **facts: Any) -> Row:
        return {
            "ms": taken * 1e3,
            "floor_ms": floor * 1e3,
            "of_floor": floor / taken,
            "tokens_s": batch / taken,
            **facts,
        }


def steps(bench: Bench, batch: int, context: int, params: SamplingParams = PLAIN) -> Row:
    company = bench.company(batch, context, params=[params] * batch)
    waiting = statistics.median(company.waiting(bench.machine.size(16, 1)))
    taken, waits = bench.timed(company)
    floor = bench.subject.decode_floor([context] * batch, bench.machine.ceilings)
    return bench.against(taken, floor, batch, ms_waiting=waiting * 1e3, host_waits=waits)


def mixed(bench: Bench, batch: int, context: int, chunk: Chunk) -> Row:
    """Measure steps with a part of a prompt in each, and the same ones without."""
    size = bench.machine.size
    part = Chunk(size(chunk.tokens, 12), size(chunk.behind, min(chunk.behind, 30)))
    taken, waits = bench.timed(bench.company(batch, context, chunk=part))
    alone, _ = bench.timed(bench.company(batch, context))
    operations = bench.subject.prefill_operations(chunk.tokens, chunk.behind)
    floor = bench.subject.decode_floor([context] * batch, bench.machine.ceilings)
    floor = max(floor, bench.machine.ceilings.floor(computed=operations))
    return bench.against(
        taken, floor, batch, ms_without=alone * 1e3, ratio=taken / alone, host_waits=waits
    )


def special(bench: Bench, batch: int, context: int, kind: str) -> Row:
    """Measure one such request among plain ones."""
    guides = (0,) if kind == "grammar" else ()
    company = bench.company(batch, context, params=[SPECIAL[kind]], guides=guides)
    taken, waits = bench.timed(company)
    alone, _ = bench.timed(bench.company(batch, context))
    return {
        "ms": taken * 1e3,
        "ms_without": alone * 1e3,
        "ratio": taken / alone,
        "host_waits": waits,
    }


def uneven(bench: Bench, batch: int, context: int, longest: int) -> Row:
    """Measure short contexts with a very long one among them. ``ratio_of_bytes``: what reading the
    long one costs at least."""
    size, ceilings = bench.machine.size, bench.machine.ceilings
    contexts = spread(size(batch, 3), size(context, 20), bench.subject.block_size)
    alone, _ = bench.timed(Company(bench.subject, contexts))
    taken, _ = bench.timed(Company(bench.subject, [size(longest, 200), *contexts]))
    floors = [
        bench.subject.decode_floor([context] * batch + more, ceilings) for more in ([], [longest])
    ]
    return bench.against(
        taken,
        floors[1],
        batch + 1,
        ms_without=alone * 1e3,
        ratio=taken / alone,
        ratio_of_bytes=floors[1] / floors[0],
    )


def profiled(bench: Bench, batch: int, context: int) -> Row:
    """Profile the device in steady steps that are launched ahead."""
    company = bench.company(batch, context)
    size = bench.machine.size
    company.ahead(size(8, 1))
    on_gpu = bench.machine.device.type == "cuda"
    # The host's side stays off: recording it would stretch what lies between kernels.
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    count = size(20, 1)
    with profile(activities=[activity]) as trace:
        company.ahead(count)
        if on_gpu:
            torch.cuda.synchronize()
    company.leave()
    types = torch._C._autograd.DeviceType
    wanted = types.CUDA if on_gpu else types.CPU
    events = [
        (event.name, event.time_range.start, event.time_range.end)
        for event in trace.events()
        if event.device_type == wanted
    ]
    return timeline(events, count + 1)


Event = tuple[str, float, float]  # name, begin, end in microseconds


def timeline(events: Items[Event], steps: int) -> Row:
    """Return what the device did in ``steps``. ``gap_us``: between the last kernel of a step and
    the first of the next."""
    events = sorted(events, key=lambda event: event[1])
    kernels = [event for event in events if not event[0].lower().startswith("mem")]
    firsts = [place for place, event in enumerate(kernels) if event[0].startswith(_FIRST_KERNEL)]
    gaps = [kernels[place][1] - kernels[place - 1][2] for place in firsts if place]
    periods = [kernels[b][1] - kernels[a][1] for a, b in pairwise(firsts)]
    begin, busy = kernels[0][1], 0.0
    reach = begin
    by_name: dict[str, float] = {}
    for _, start, end in events:
        busy += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    for name, start, end in kernels:
        short = name.split("<")[0][:40]
        by_name[short] = by_name.get(short, 0.0) + end - start
    top = sorted(by_name.items(), key=lambda entry: -entry[1])[:8]
    gap = statistics.median(gaps) if gaps else None
    return {
        "gap_us": gap,
        "gap_share": gap / statistics.median(periods) if gap is not None and periods else None,
        "busy_share": busy / (reach - begin),
        "kernels_a_step": len(kernels) / steps,
        "copies_to_device_a_step": sum("HtoD" in event[0] for event in events) / steps,
        "us_a_step_by_kernel": {name: round(us / steps, 1) for name, us in top},
    }


def prefill(bench: Bench, tokens: int) -> Row:
    """Measure one prompt of ``tokens`` in one step, up to its first token."""
    own = bench.machine.size(tokens, 40)
    times = []
    for number in range(bench.machine.size(5, 2)):
        sequence = Sequence(
            uid=5000 + number,
            request_id="bench",
            token_ids=torch.randint(0, bench.subject.vocab_size, (own,)).tolist(),
            num_prompt_tokens=own,
            params=SamplingParams(max_tokens=1, temperature=0.0),
            block_table=list(range(-(-own // bench.subject.block_size))),
        )
        plan = StepPlan((ScheduledSequence(sequence, 0, own, completes=True),))
        begin = time.perf_counter()
        bench.subject.runner.execute(plan)
        times.append(time.perf_counter() - begin)
        bench.subject.runner.forget(sequence.uid)
    taken = statistics.median(times[1:])
    operations = bench.subject.prefill_operations(tokens)
    floor = bench.machine.ceilings.floor(moved=bench.subject.products, computed=operations)
    rate = operations / taken
    return bench.against(
        taken, floor, tokens, tflop_s=rate / 1e12, of_rate=rate / bench.machine.ceilings.flops
    )


Rows = Items[tuple[str, Callable[[Bench], Row], float]]

# In order of worth; the number: seconds that a row needs.
SMALL: Final[Rows] = (
    ("steps qwen3-0.6b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
    ("profile qwen3-0.6b batch 1", partial(profiled, batch=1, context=256), 4),
    ("steps qwen3-0.6b batch 64 ctx 1024", partial(steps, batch=64, context=1024), 3),
    ("steps qwen3-0.6b batch 256 ctx 1024", partial(steps, batch=256, context=1024), 4),
    ("nano-vllm qwen3-0.6b", nano, 30),
    (
        "mixed qwen3-0.6b 32 ctx 1024 and 128 new",
        partial(mixed, batch=32, context=1024, chunk=Chunk(128)),
        5,
    ),
    ("special qwen3-0.6b logprobs", partial(special, batch=64, context=1024, kind="logprobs"), 5),
    ("special qwen3-0.6b grammar", partial(special, batch=64, context=1024, kind="grammar"), 5),
    ("special qwen3-0.6b penalties", partial(special, batch=64, context=1024, kind="penalties"), 5),
    ("profile qwen3-0.6b batch 256", partial(profiled, batch=256, context=1024), 5),
    ("prefill qwen3-0.6b 1024 tokens", partial(prefill, tokens=1024), 3),
)
LARGE: Final[Rows] = (
    ("steps llama-8b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
    ("steps llama-8b batch 16 ctx 256", partial(steps, batch=16, context=256), 3),
    ("prefill llama-8b 8192 tokens", partial(prefill, tokens=8192), 5),
    ("burst llama-8b c4", partial(burst, streams=4, asked=1024, answered=256), 8),
    ("steps llama-8b batch 64 ctx 1024", partial(steps, batch=64, context=1024), 4),
    (
        "steps llama-8b batch 64 ctx 1024 top_p",
        partial(steps, batch=64, context=1024, params=TOP_P),
        4,
    ),
    ("steps llama-8b batch 256 ctx 1024", partial(steps, batch=256, context=1024), 6),
    (
        "mixed llama-8b 256 ctx 1024 and 512 new",
        partial(mixed, batch=256, context=1024, chunk=Chunk(512)),
        12,
    ),
    (
        "mixed llama-8b 8 ctx 1024 and 64 behind 30k",
        partial(mixed, batch=8, context=1024, chunk=Chunk(64, 30_000)),
        6,
    ),
    (
        "uneven llama-8b 64 ctx 1024 and 1 ctx 128k",
        partial(uneven, batch=64, context=1024, longest=131_072),
        8,
    ),
    ("special llama-8b logprobs", partial(special, batch=64, context=1024, kind="logprobs"), 6),
    ("special llama-8b grammar", partial(special, batch=64, context=1024, kind="grammar"), 6),
    ("profile llama-8b batch 64", partial(profiled, batch=64, context=1024), 6),
    ("prefill llama-8b 128 tokens", partial(prefill, tokens=128), 3),
    ("prefill llama-8b 1024 tokens", partial(prefill, tokens=1024), 3),
    ("burst llama-8b 256 1k/1k", partial(burst, streams=256, asked=1024, answered=1024), 60),
)
MIXTURE: Final[Rows] = (
    ("steps qwen3-30b-a3b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
    ("steps qwen3-30b-a3b batch 64 ctx 1024", partial(steps, batch=64, context=1024), 4),
    ("steps qwen3-30b-a3b batch 4 ctx 1024", partial(steps, batch=4, context=1024), 4),
    ("profile qwen3-30b-a3b batch 64", partial(profiled, batch=64, context=1024), 5),
    ("prefill qwen3-30b-a3b 2048 tokens", partial(prefill, tokens=2048), 5),
)
CUDNN: Final[Rows] = (
    ("cudnn llama-8b prefill 8192 tokens", partial(prefill, tokens=8192), 5),
    (
        "cudnn llama-8b 256 ctx 1024 and 512 new",
        partial(mixed, batch=256, context=1024, chunk=Chunk(512)),
        12,
    ),
)
DETERMINISTIC: Final[Rows] = (
    ("deterministic llama-8b batch 64 ctx 1024", partial(steps, batch=64, context=1024), 5),
)
# Launched kernel by kernel.
NO_GRAPHS: Final[Rows] = (
    (
        "no-graphs qwen3-0.6b 32 ctx 1024 and 128 new",
        partial(mixed, batch=32, context=1024, chunk=Chunk(128)),
        5,
    ),
)
# Each kernel after the end of the one before.
NO_EARLY: Final[Rows] = (
    ("no-early-launch qwen3-0.6b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
)
FLASHINFER: Final[Rows] = (
    ("flashinfer llama-8b prefill 8192 tokens", partial(prefill, tokens=8192), 5),
    (
        "flashinfer llama-8b 8 ctx 1024 and 512 behind 30k",
        partial(mixed, batch=8, context=1024, chunk=Chunk(512, 30_000)),
        6,
    ),
)
FP8_CACHE: Final[Rows] = (
    ("fp8-cache qwen3-0.6b batch 256 ctx 1024", partial(steps, batch=256, context=1024), 5),
)
BLOCKS_OF_64: Final[Rows] = (
    ("block-64 qwen3-0.6b batch 256 ctx 1024", partial(steps, batch=256, context=1024), 5),
)
# Weights quantized at load, 32 to a group.
INT4: Final[Rows] = (
    ("int4 llama-8b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
    ("int4 llama-8b batch 16 ctx 256", partial(steps, batch=16, context=256), 3),
    ("int4 llama-8b prefill 8192 tokens", partial(prefill, tokens=8192), 5),
    ("int4 llama-8b profile batch 1", partial(profiled, batch=1, context=256), 5),
)
INT8: Final[Rows] = (("int8 llama-8b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),)
FP8: Final[Rows] = (
    ("fp8 llama-8b batch 1 ctx 256", partial(steps, batch=1, context=256), 3),
    ("fp8 llama-8b batch 16 ctx 256", partial(steps, batch=16, context=256), 3),
)


@dataclass(frozen=True)
class Loaded:
    """``rows`` of a model with ``settings``; ``needs``: seconds to load it."""

    model: str
    rows: Rows
    needs: float
    name: str = ""
    settings: tuple[tuple[str, Any], ...] = ()


MAIN: Final = (Loaded("qwen3-0.6b", SMALL, 20), Loaded("llama-8b", LARGE, 40))
# A dry run has no cuDNN.
WITH_CUDNN: Final = Loaded("llama-8b", CUDNN, 40, " cudnn", (("attention", "cudnn"),))
# Where the package is installed.
WITH_FLASHINFER: Final = Loaded(
    "llama-8b", FLASHINFER, 120, " flashinfer", (("attention", "flashinfer"),)
)
VARIANTS: Final = (
    # Little is left for the KV cache with 61 GB of weights.
    Loaded("qwen3-30b-a3b", MIXTURE, 45, settings=(("max_model_len", 16_384),)),
    Loaded("qwen3-0.6b", NO_EARLY, 20, " no-early-launch", (("programmatic_launch", False),)),
    Loaded("llama-8b", DETERMINISTIC, 40, " deterministic", (("deterministic", True),)),
    Loaded("llama-8b", INT4, 50, " int4", (("quantization", "int4"),)),
    Loaded("llama-8b", INT8, 50, " int8", (("quantization", "int8"),)),
    Loaded("llama-8b", FP8, 50, " fp8", (("quantization", "fp8"),)),
    Loaded("qwen3-0.6b", NO_GRAPHS, 20, " no-graphs", (("cuda_graphs", False),)),
    Loaded("qwen3-0.6b", FP8_CACHE, 20, " fp8-cache", (("kv_cache_dtype", "fp8"),)),
    Loaded("qwen3-0.6b", BLOCKS_OF_64, 20, " block-64", (("block_size", 64),)),
)


def measure(report: Report, machine: Machine, each: Loaded, *, quick: bool = False) -> None:
    """Measure a model's rows, unless none was requested or the model does not load."""
    rows = each.rows[:2] if quick else each.rows
    if not any(report.wants(name) for name, _, _ in rows):
        return
    subjects: list[Subject] = []

    def start() -> Row:
        settings = dict(each.settings)
        subject, times = load(shape_of(each.model, machine), machine, **settings)
        subjects.append(subject)
        blocks = subject.runner.info.num_kv_blocks
        return {**times, "gb": subject.products / 1e9, "kv_blocks": blocks}

    report.add(f"load {each.model}{each.name}", start, always=True, needs=each.needs)
    if subjects:
        bench = Bench(subjects.pop(), machine)
        for name, row, needs in rows:
            report.add(name, partial(row, bench), needs=needs)
        del bench
    # Only reference cycles keep the model alive now.
    gc.collect()
    torch.cuda.empty_cache()
