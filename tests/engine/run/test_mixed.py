"""Recorded steps with parts of prompts compute what others do, whatever was computed before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine.messages import Embed, SamplingParams
from engine.run.batch import StepBatch
from engine.run.mixed import MOST_CHUNKS, MixedSteps
from engine.run.model_runner import ModelRunner
from engine.step.sequence import Sequence
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.driving import load_runner
from tests.engine.tiny_models import VOCABULARY

BLOCK_SIZE = 8
PLAIN = SamplingParams(max_tokens=9, temperature=0.0)


@pytest.fixture(scope="module")
def runner(one_layer: Path, device: torch.device) -> ModelRunner:
    return load_runner(
        one_layer,
        device=device.type,
        gpu_path="triton",
        block_size=BLOCK_SIZE,
        num_kv_blocks=96,
        max_num_seqs=12,
        max_model_len=96,
        max_num_batched_tokens=80,
    )


@pytest.fixture
def mixed(runner: ModelRunner) -> MixedSteps:
    assert runner._mixed is not None
    return runner._mixed


def item(uid: int, start: int, count: int, params: SamplingParams = PLAIN) -> ScheduledSequence:
    """The blocks of eight sequences are disjoint."""
    tokens = random.Random(uid).choices(range(VOCABULARY), k=start + count)
    first = uid % 8 * 12
    sequence = Sequence(
        uid=uid,
        request_id=str(uid),
        token_ids=tokens,
        num_prompt_tokens=len(tokens),
        params=params,
        block_table=[first + (5 * number) % 12 for number in range(-(-len(tokens) // BLOCK_SIZE))],
    )
    return ScheduledSequence(sequence, start, count, completes=True)


def built(runner: ModelRunner, *items: ScheduledSequence) -> StepBatch:
    return runner._batches.build(StepPlan(items), None, runner._needs_every_row)


@torch.inference_mode()
def test_a_recorded_step_computes_what_its_kernels_do_one_by_one(
    runner: ModelRunner, mixed: MixedSteps
) -> None:
    def check(*items: ScheduledSequence) -> None:
        batch = built(runner, *items)
        assert mixed.fits(batch)
        expected = runner._decoder.hidden_states(
            batch.token_ids, batch.positions, runner._cache, batch.layout, batch.kept
        )
        before = runner._cache.layer(0).clone()
        found = mixed.hidden_states(batch)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(runner._cache.layer(0), before)

    check(item(0, 0, 40), item(1, 0, 11), item(2, 0, 9))  # 64 rows
    check(item(0, 40, 1), item(3, 0, 21), item(1, 11, 1), item(2, 9, 4))  # 32 rows, two decode
    check(item(4, 0, 5))  # 16 rows, one chunk, after larger ones


def test_a_step_beyond_what_is_recorded_is_computed_kernel_by_kernel(
    runner: ModelRunner, mixed: MixedSteps
) -> None:
    assert mixed.fits(built(runner, item(0, 0, 80)))
    assert not mixed.fits(built(runner, item(0, 0, 80), item(1, 0, 1)))
    chunks = [item(number, 0, 2) for number in range(MOST_CHUNKS + 1)]
    assert mixed.fits(built(runner, *chunks[:-1]))
    assert not mixed.fits(built(runner, *chunks))
    assert not mixed.fits(built(runner, *[item(number, 0, 1) for number in range(3)]))
    every = SamplingParams(max_tokens=9, temperature=0.0, prompt_logprobs=0)
    assert not mixed.fits(built(runner, item(0, 0, 9, every)))
    rows = [item(number, 0, 1) for number in range(12)]
    assert mixed.fits(built(runner, *rows[:-1], item(12, 0, 3)))
    assert not mixed.fits(built(runner, *rows, item(12, 0, 3)))


def test_texts_to_embed_are_computed_by_it_where_their_last_state_is_needed(
    runner: ModelRunner, mixed: MixedSteps
) -> None:
    text = item(0, 0, 9)
    text.sequence.embed = Embed()
    assert mixed.fits(built(runner, text)) == (not runner._parts.pooler.needs_every_token)


def test_the_runner_takes_recorded_steps_where_they_fit(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    compute = MixedSteps.hidden_states

    def noted(self: MixedSteps, batch: StepBatch) -> torch.Tensor:
        taken.append(batch.token_ids.shape[0])
        return compute(self, batch)

    plan = StepPlan((item(0, 0, 7), item(1, 0, 6)))
    recorded = runner.execute(plan).sampled
    monkeypatch.setattr(MixedSteps, "hidden_states", noted)
    assert runner.execute(plan).sampled == recorded
    assert taken == [13]
    monkeypatch.setattr(runner, "_mixed", None)
    assert runner.execute(plan).sampled == recorded
    assert taken == [13]
