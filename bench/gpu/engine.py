"""Whole engine steps compared with the time that reading weights and contexts must take."""

from __future__ import annotations

import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.report import Report, Row
from bench.gpu.timing import Ceilings
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.step.sequence import Sequence
from engine.step.step import PENDING, SampledToken, ScheduledSequence, StepPlan, StepResult

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 16384,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_06B = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 16384,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
BLOCK_SIZE: Final = 16
WARM, TIMED = 8, 64


@dataclass(frozen=True)
class Subject:
    """A model of random weights, and the bytes that a decode step must read of it."""

    runner: ModelRunner
    weight_bytes: int
    kv_bytes_per_token: int


def load(shape: dict[str, Any], *, max_num_seqs: int, **settings: Any) -> Subject:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(shape))
        defaults: dict[str, Any] = {
            "device": "cuda",
            "max_model_len": 4096,
            "max_num_batched_tokens": 8192,
        }
        config = EngineConfig(
            model=directory,
            load_format="dummy",
            gpu_path="triton",
            block_size=BLOCK_SIZE,
            max_num_seqs=max_num_seqs,
            **(defaults | settings),
        )
        runner = load_model_runner(config, lambda phase, done, total: None)
    # Not zeros, which are faster to read than real contents.
    with torch.inference_mode():
        for layer in range(shape["num_hidden_layers"]):
            runner._cache.layer(layer).normal_()
    embedding = shape["vocab_size"] * shape["hidden_size"]
    read = runner.info.num_parameters - (0 if shape["tie_word_embeddings"] else embedding)
    head_dim = shape.get("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
    per_token = 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_dim
    return Subject(runner, 2 * read, per_token)


class Company:
    """Sequences that decode together; their prompts are never computed."""

    def __init__(
        self, runner: ModelRunner, batch: int, context: int, params: SamplingParams
    ) -> None:
        self._runner = runner
        needed = -(-(context + 4 * (WARM + TIMED)) // BLOCK_SIZE)
        if batch * needed > runner.info.num_kv_blocks:
            raise ValueError(f"{batch} contexts of {context} tokens do not fit into the KV cache")
        order = random.Random(0).sample(range(batch * needed), batch * needed)
        self._sequences = [
            Sequence(
                uid=1000 + number,
                request_id="bench",
                token_ids=[7] * (context + 1),
                num_prompt_tokens=1,
                params=params,
                block_table=order[number * needed : (number + 1) * needed],
            )
            for number in range(batch)
        ]
        self._start = context  # of the next step
        self._known = context + 1  # tokens

    def plan(self) -> StepPlan:
        start, self._start = self._start, self._start + 1
        for sequence in self._sequences:
            if sequence.num_tokens == start:
                sequence.token_ids.append(PENDING)
        return StepPlan(
            tuple(ScheduledSequence(s, start, 1, completes=True) for s in self._sequences)
        )

    def take(self, result: StepResult) -> None:
        for sequence, sampled in zip(self._sequences, result.sampled, strict=True):
            assert isinstance(sampled, SampledToken)
            sequence.token_ids[self._known : self._known + 1] = [sampled.token_id]
        self._known += 1

    def waiting(self, steps: int) -> list[float]:
        """Measure the seconds of steps whose tokens the host waits for."""
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.take(self._runner.execute(self.plan()))
            times.append(time.perf_counter() - begin)
        return times

    def ahead(self, steps: int) -> list[float]:
        """Measure the seconds of steps that are launched before the previous step's tokens are
        fetched, as the engine core does."""
        launch = self._runner.launch
        assert launch is not None
        times = []
        step = launch(self.plan())
        step.sample(frozenset())
        for _ in range(steps):
            begin = time.perf_counter()
            following = launch(self.plan())
            self.take(step.result())
            following.sample(frozenset())
            step = following
            times.append(time.perf_counter() - begin)
        self.take(step.result())
        return times


def steps(subject: Subject, batch: int, context: int, ceilings: Ceilings) -> Row:
    params = SamplingParams(max_tokens=10_000, temperature=0.6, seed=1, ignore_eos=True)
    company = Company(subject.runner, batch, context, params)
    company.waiting(WARM)
    waiting = statistics.median(company.waiting(TIMED))
    ahead = statistics.median(company.ahead(TIMED))
    kv = batch * (context + WARM + TIMED) * subject.kv_bytes_per_token
    floor = ceilings.floor(moved=subject.weight_bytes + kv)
    return {
        "ms_waiting": waiting * 1e3,
        "ms_ahead": ahead * 1e3,
        "floor_ms": floor * 1e3,
        "of_floor": floor / ahead,
        "tokens_s": batch / ahead,
    }


def profiled(subject: Subject, batch: int, context: int) -> Row:
    """Profile the device in steady steps that are launched ahead."""
    params = SamplingParams(max_tokens=10_000, temperature=0.6, seed=1, ignore_eos=True)
    company = Company(subject.runner, batch, context, params)
    company.ahead(WARM)
    count = 20
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        company.ahead(count)
        torch.cuda.synchronize()
    device = torch._C._autograd.DeviceType.CUDA
    events = sorted(
        (event for event in trace.events() if event.device_type == device),
        key=lambda event: event.time_range.start,
    )
    kernels = [event for event in events if not event.name.lower().startswith("mem")]
    sent = [event for event in events if "HtoD" in event.name]
    begin, busy, reach = kernels[0].time_range.start, 0.0, 0.0
    reach = begin
    for event in events:
        start, end = max(event.time_range.start, reach), event.time_range.end
        busy += max(0.0, end - start)
        reach = max(reach, end)
    by_name: dict[str, float] = {}
    for event in kernels:
        name = event.name.split("<")[0][:40]
        by_name[name] = by_name.get(name, 0.0) + event.time_range.end - event.time_range.start
    top = sorted(by_name.items(), key=lambda entry: -entry[1])[:8]
    return {
        "busy_share": busy / (reach - begin),
        "idle_us_a_step": (reach - begin - busy) / (count + 1),
        "kernels_a_step": len(kernels) / (count + 1),
        "host_to_device_copies_a_step": len(sent) / (count + 1),
        "us_a_step_by_kernel": {name: round(us / (count + 1), 1) for name, us in top},
    }


def prefill(subject: Subject, tokens: int, ceilings: Ceilings) -> Row:
    """Measure one prompt of ``tokens`` in one step, up to its first token."""
    params = SamplingParams(max_tokens=1, temperature=0.0)
    times = []
    for number in range(5):
        sequence = Sequence(
            uid=5000 + number,
            request_id="bench",
            token_ids=torch.randint(0, 1000, (tokens,)).tolist(),
            num_prompt_tokens=tokens,
            params=params,
            block_table=list(range(-(-tokens // BLOCK_SIZE))),
        )
        begin = time.perf_counter()
        plan = StepPlan((ScheduledSequence(sequence, 0, tokens, completes=True),))
        subject.runner.execute(plan)
        times.append(time.perf_counter() - begin)
    taken = statistics.median(times[1:])
    floor = ceilings.floor(computed=subject.weight_bytes * tokens)  # 2 bytes, 2 operations
    return {"ms": taken * 1e3, "floor_ms": floor * 1e3, "tokens_s": tokens / taken}


def nano(subject: Subject, sequences: int = 256) -> Row:
    """Run the workload of nano-vllm's benchmark: 100 to 1024 tokens in and out, at random, all
    submitted at once, through the whole engine core."""
    chance = random.Random(0)
    core = EngineCore(
        subject.runner,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        enable_prefix_caching=False,
    )
    core.connect(0)
    asked = 0
    for handle in range(sequences):
        prompt = [chance.randrange(10_000) for _ in range(chance.randint(100, 1024))]
        out = chance.randint(100, 1024)
        asked += out
        params = SamplingParams(max_tokens=out, temperature=0.6, seed=handle, ignore_eos=True)
        core.add(
            0,
            Submit(
                handle=handle,
                request_id="bench",
                prompt_token_ids=prompt,
                task=Generate(params),
                arrival_time=time.monotonic(),
            ),
        )
    begin, received, taken = time.perf_counter(), 0, 0
    while core.has_work:
        received += len(core.step()[0].token_ids) // 4
        taken += 1
    seconds = time.perf_counter() - begin
    if received != asked:
        raise RuntimeError(f"{received} tokens came, {asked} were asked for")
    return {"tokens": asked, "s": seconds, "tokens_s": asked / seconds, "steps": taken}


def measure_all(report: Report, ceilings: Ceilings, *, quick: bool) -> None:
    def small(subject: Subject) -> None:
        for batch, context in ((1, 256),) if quick else ((1, 256), (64, 1024), (256, 1024)):
            name = f"steps qwen3-0.6b batch {batch} ctx {context}"
            report.add(name, partial(steps, subject, batch, context, ceilings))
        report.add("profile qwen3-0.6b batch 1", partial(profiled, subject, 1, 256))
        if not quick:
            report.add("profile qwen3-0.6b batch 256", partial(profiled, subject, 256, 1024))
        report.add("nano-vllm qwen3-0.6b", partial(nano, subject, 32 if quick else 256))

    def large(subject: Subject) -> None:
        for batch, context in (
            ((1, 256), (4, 1024)) if quick else ((1, 256), (4, 1024), (256, 1024))
        ):
            name = f"steps llama-8b batch {batch} ctx {context}"
            report.add(name, partial(steps, subject, batch, context, ceilings))
        report.add("profile llama-8b batch 1", partial(profiled, subject, 1, 256))
        report.add("prefill llama-8b 4000 tokens", partial(prefill, subject, 4000, ceilings))

    _measure(report, "qwen3-0.6b", QWEN3_06B, small)
    _measure(report, "llama-8b", LLAMA_8B, large)


def _measure(
    report: Report, name: str, shape: dict[str, Any], rows: Callable[[Subject], None]
) -> None:
    """Measure the ``rows`` of a model, unless none was requested or the model does not load."""
    kinds = ("steps", "profile", "prefill", "nano-vllm")
    if not any(report.wants(f"{kind} {name}") for kind in kinds):
        return
    subjects: list[Subject] = []

    def measure() -> Row:
        subjects.append(load(shape, max_num_seqs=256))
        return {"kv_blocks": subjects[0].runner.info.num_kv_blocks}

    report.add(f"load {name}", measure, always=True)
    if subjects:
        rows(subjects.pop())
    # Only reference cycles keep the model alive now.
    gc.collect()
    torch.cuda.empty_cache()
