"""Requests that meet in mixed steps: chunks, decodes, prefix hits, preemption, repeated steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from engine.messages import SamplingParams
from engine.run.model_runner import ModelRunner
from engine.schedule.scheduler import Scheduler
from engine.step.step import StepPlan, StepResult
from tests.engine.driving import Engine, Output, load_runner
from tests.engine.plugin.families import expected, prompt

TOLERANCE = 1e-4  # of the range of the logits
LENGTH = 60


class Repeating:
    """Runs every third plan twice, as a retry would. ``runner``: a real one; ``limits``: what its
    ``info`` is to say instead."""

    def __init__(self, runner: ModelRunner, **limits: Any) -> None:
        self._runner = runner
        self.info = replace(runner.info, **limits)
        self.launch = None
        self.num_steps = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self.num_steps += 1
        if self.num_steps % 3 == 0:
            self._runner.execute(plan)
        return self._runner.execute(plan)

    def forget(self, uid: int) -> None:
        self._runner.forget(uid)


def assert_equals_transformers(directory: Path, oracle: PreTrainedModel, **settings: Any) -> None:
    """Serve four sequences of which two share a prefix, with too few blocks for all of them and
    chunks of a few tokens; each token and its logprobs must be those of transformers."""
    runner = Repeating(
        load_runner(
            directory, block_size=8, num_kv_blocks=28, max_num_batched_tokens=23, **settings
        )
    )
    engine = Engine(directory, runner=runner, max_num_batched_tokens=23)
    if runner.info.num_snapshots:
        assert isinstance(engine.core.scheduler, Scheduler)
        assert engine.core.scheduler.prefix.snapshots is not None
        engine.core.scheduler.prefix.snapshots.interval = 32
    shared = prompt(20, seed=1)
    engine.generate([shared + prompt(5, seed=2)], SamplingParams(max_tokens=1, temperature=0.0))
    prompts = [shared + prompt(9, seed=3), prompt(1, seed=4), shared, prompt(30, seed=5)]
    params = SamplingParams(max_tokens=LENGTH, temperature=0.0, logprobs=20, ignore_eos=True)
    outputs = engine.generate(prompts, params)
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        assert len(output.token_ids) == LENGTH
        assert_same(oracle, prompt_ids, output)
    records = [output.finished for output in outputs if output.finished]
    assert sum(record.preemptions for record in records) > 0
    # Whole blocks of the shared prefix.
    assert records[0].cached_tokens == 16
    assert runner.num_steps >= 40


def assert_same(oracle: PreTrainedModel, prompt_ids: list[int], output: Output) -> None:
    """Each token and its logprobs must be those of transformers."""
    whole = expected(oracle, prompt_ids + output.token_ids)
    rows = whole.logprobs[len(prompt_ids) - 1 : -1]
    near = TOLERANCE * whole.span
    for row, token_id, found in zip(rows, output.token_ids, output.logprobs, strict=True):
        assert row.max() - row[token_id] <= near  # two that differ by rounding are equally good
        assert abs(row[token_id] - found.logprob) <= near
        assert all(abs(row[top.token_id] - top.logprob) <= near for top in found.top)
