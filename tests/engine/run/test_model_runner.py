"""The runner loads, sizes its cache, and runs plans; what it cannot serve it says in a sentence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.messages import SamplingParams
from engine.sampling.sampler import SamplingError
from engine.step.step import ScheduledSequence, StepPlan
from tests.engine.driving import load_runner
from tests.engine.run.plans import sequence, take, whole
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def test_a_plan_run_twice_gives_the_same(model: Path) -> None:
    runner = load_runner(model)
    rows = [sequence(1, [5, 6, 7], [3, 9]), sequence(2, list(range(20)), [1, 0, 7])]
    take(runner.execute(whole(*rows)), *rows)
    for _ in range(20):
        plan = whole(*rows)
        first = runner.execute(plan)
        assert runner.execute(plan) == first
        take(first, *rows)


def test_results_are_in_the_plans_order_for_any_mixture(model: Path) -> None:
    texts = {1: list(range(40)), 2: [9, 8, 7], 3: list(range(50, 75)), 4: [1]}
    blocks = {uid: list(range(uid * 8, uid * 8 + 8)) for uid in texts}
    expected = {}
    for uid, text in texts.items():
        [token] = load_runner(model).execute(whole(sequence(uid, text, blocks[uid]))).sampled
        expected[uid] = token
    runner = load_runner(model)
    rows = {uid: sequence(uid, text, blocks[uid]) for uid, text in texts.items()}
    before = [ScheduledSequence(rows[uid], 0, len(texts[uid]) - 1, False) for uid in (1, 2)]
    assert runner.execute(StepPlan(tuple(before))).sampled == [None, None]
    mixed = (
        ScheduledSequence(rows[3], 0, 25, completes=True),
        ScheduledSequence(rows[2], 2, 1, completes=True),
        ScheduledSequence(rows[4], 0, 1, completes=True),
        ScheduledSequence(rows[1], 39, 1, completes=True),
    )
    result = runner.execute(StepPlan(mixed))
    assert result.sampled == [expected[uid] for uid in (3, 2, 4, 1)]


def test_sequences_that_join_leave_and_move_keep_their_own_blocks(model: Path) -> None:
    """Greedy text of four sequences in changing batches equals their text computed alone."""

    def text(uid: int) -> list[int]:
        return [uid * 7 % VOCABULARY, *range(uid, uid + 9 * uid)]

    alone = {}
    for uid in range(1, 5):
        runner, row = load_runner(model), sequence(uid, text(uid), list(range(20)))
        for _ in range(40):
            take(runner.execute(whole(row)), row)
        alone[uid] = row.token_ids
    runner = load_runner(model)
    rows = {uid: sequence(uid, text(uid), list(range(uid * 20, uid * 20 + 20))) for uid in alone}
    companies = [(1, 2, 3), (3, 1, 2), (2,), (2, 4), (4, 3, 2, 1), (1, 2, 3, 4)]
    step = 0
    while any(len(rows[uid].token_ids) < len(alone[uid]) for uid in rows):
        company = [
            rows[uid]
            for uid in companies[step // 5 % len(companies)]
            if len(rows[uid].token_ids) < len(alone[uid])
        ]
        step += 1
        if company:
            take(runner.execute(whole(*company)), *company)
    assert {uid: row.token_ids for uid, row in rows.items()} == alone


def test_a_decode_row_at_another_position_in_the_plan_is_computed_correctly(model: Path) -> None:
    """A prompt of one token comes after another's chunk, and decodes before the next one's."""

    def tokens(*companies: int) -> list[int]:
        runner, row = load_runner(model), sequence(9, [7], [9])
        for step, company in enumerate(companies):
            others = [sequence(100 + step, list(range(12)), [step])] * company
            plan = whole(*others, row) if step == 0 else whole(row, *others)
            take(runner.execute(plan), *(item.sequence for item in plan.scheduled))
        return row.token_ids

    assert tokens(1, 1, 0, 0, 0, 0) == tokens(0, 0, 0, 0, 0, 0)


def test_a_preempted_sequence_that_returns_to_other_blocks_reads_those(model: Path) -> None:
    runner, other = load_runner(model), load_runner(model)
    row, steady = sequence(1, list(range(15)), [0, 1, 2]), sequence(2, list(range(9)), [5, 6, 7])
    control = sequence(1, list(range(15)), [0, 1, 2])
    for _ in range(4):
        take(runner.execute(whole(row, steady)), row, steady)
        take(other.execute(whole(control)), control)
    row.block_table, row.num_computed_tokens = [9, 8, 10], 0
    row.num_preemptions += 1
    poison = sequence(3, [1] * 16, [0])
    runner.execute(whole(poison))
    for _ in range(4):
        take(runner.execute(whole(row, steady)), row, steady)
        take(other.execute(whole(control)), control)
    assert row.token_ids == control.token_ids


@pytest.fixture
def flawed_model(tmp_path: Path) -> Path:
    """Token 5 embeds to infinity, so that sequences with it compute NaN or infinity."""
    save_model(VARIANTS["llama"], tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][5] = math.inf
    save_file(tensors, path)
    return tmp_path


def test_a_sequence_of_nan_fails_alone_and_its_blocks_can_be_used_again(
    flawed_model: Path,
) -> None:
    runner = load_runner(flawed_model)
    bad, good = sequence(1, [5] * 20, [0, 1]), sequence(2, [1, 2, 3], [2])
    control = sequence(2, [1, 2, 3], [2])
    result = runner.execute(whole(bad, good))
    [expected] = load_runner(flawed_model).execute(whole(control)).sampled
    assert isinstance(result.sampled[0], SamplingError)
    assert result.sampled[1] == expected
    heir, mate = sequence(3, [1, 2, 3], [0]), sequence(4, list(range(6, 40)), [5, 6, 7])
    take(runner.execute(whole(heir, mate)), heir, mate)
    assert heir.token_ids[-1] == expected.token_id
    fresh = sequence(3, [1, 2, 3], [0])
    other = load_runner(flawed_model)
    take(other.execute(whole(fresh)), fresh)
    for _ in range(6):
        take(runner.execute(whole(heir, mate)), heir, mate)
        take(other.execute(whole(fresh)), fresh)
    assert heir.token_ids == fresh.token_ids


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_agrees_with_float32_to_its_own_precision(model: Path, dtype: str) -> None:
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=0, prompt_logprobs=0)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    [full] = (
        load_runner(model).execute(whole(sequence(1, prompt, [0], params))).prompt_logprobs[0],
    )
    runner = load_runner(model, dtype=dtype)
    assert runner.info.dtype == dtype
    [half] = (runner.execute(whole(sequence(1, prompt, [0], params))).prompt_logprobs[0],)
    for a, b in zip(full, half, strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=0.35)
