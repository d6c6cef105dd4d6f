"""Before there is a KV cache, the largest step and every graph are run over small ones."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import engine.run.assembly
import engine.run.mixed
import engine.run.steady
from engine.device.memory import MemoryProfile
from engine.gpu.graphs import GraphStep, padded_sizes, token_sizes
from engine.run.assembly import Assembly
from engine.run.model_runner import ModelRunner
from engine.step.step import StepPlan
from tests.engine.driving import load_runner
from tests.engine.tiny_models import VARIANTS, save_model

ROWS = 5


def test_the_trial_runs_all_steps_that_are_to_be_recorded_and_spoils_nothing(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(
        replace(VARIANTS["qwen3"], settings=VARIANTS["qwen3"].settings | {"num_hidden_layers": 1}),
        tmp_path,
    )
    recorded: list[list[int]] = []

    def run_once(
        steps: Items[GraphStep],
        sizes: Items[int],
        device: torch.device,
        *,
        pool: object,
        collectives: object,
    ) -> list[GraphStep]:
        recorded.append(list(sizes))
        for size in sizes:
            for step in steps:
                step(size)
        return [*steps]

    caches: list[int] = []

    executed: list[StepPlan] = []
    execute = ModelRunner.execute

    def profile_of(device: torch.device, prepare: object, record: object) -> MemoryProfile:
        assert callable(prepare)
        assert callable(record)
        steps = prepare()
        assert not executed, "the preparation's memory is not the step's"
        with monkeypatch.context() as patch:
            patch.setattr(
                ModelRunner,
                "execute",
                lambda self, plan: (executed.append(plan), execute(self, plan))[1],
            )
            steps()
        kept = record()
        for steps_of_one_kind in kept:
            caches.append(steps_of_one_kind._cache.num_blocks)
            assert steps_of_one_kind._cache.layer(0).isfinite().all()
        return MemoryProfile(total=1 << 30, free=1 << 29, step=1 << 20, graphs=1 << 20)

    def memory_for_blocks(assembly: Assembly) -> tuple[int, str]:
        return assembly._profile().for_blocks(0.9), ""

    monkeypatch.setattr(engine.run.mixed, "graph_replays", run_once)
    monkeypatch.setattr(engine.run.steady, "graph_replays", run_once)
    monkeypatch.setattr(engine.run.assembly, "profiled", profile_of)
    monkeypatch.setattr(Assembly, "_memory_for_blocks", memory_for_blocks)
    runner = load_runner(
        tmp_path,
        device=device.type,
        gpu_path="triton",
        block_size=8,
        max_num_seqs=ROWS,
        max_model_len=80,
        max_num_batched_tokens=16,
    )
    # Once for trial, once to be kept.
    assert recorded == [token_sizes(16), padded_sizes(ROWS)] * 2
    assert caches == [2, 2]
    # As many tokens as a step may have, and as many sequences, asking for everything.
    prefill, decodes = executed
    assert prefill.num_tokens == 16
    assert len(decodes.scheduled) == decodes.num_tokens == ROWS
    assert {item.sequence.params.logprobs for item in decodes.scheduled} == {20}
    assert runner.info.num_kv_blocks == 80 // 8 * ROWS
