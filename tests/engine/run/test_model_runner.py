"""The runner loads, sizes its cache, and runs plans; what it cannot serve it says in a sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.messages import SamplingParams, token_mask
from engine.run.assembly import KVCacheTooSmallError, load_model_runner
from engine.sampling.sampler import SamplingError
from engine.step.sequence import Sequence
from engine.step.step import SampledToken, ScheduledSequence, StepPlan, StepResult
from tests.engine.driving import load_runner
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, VOCABULARY, save_model

GREEDY = SamplingParams(max_tokens=100, temperature=0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def sequence(
    uid: int, token_ids: list[int], blocks: list[int], params: SamplingParams = GREEDY
) -> Sequence:
    return Sequence(
        uid=uid,
        request_id=str(uid),
        token_ids=list(token_ids),
        num_prompt_tokens=len(token_ids),
        params=params,
        block_table=blocks,
    )


def whole(*sequences: Sequence) -> StepPlan:
    """Everything that each sequence has not computed yet."""
    items = []
    for s in sequences:
        start = s.num_computed_tokens
        items.append(ScheduledSequence(s, start, s.num_tokens - start, completes=True))
    return StepPlan(tuple(items))


def take(result: StepResult, *sequences: Sequence) -> None:
    for s, sampled in zip(sequences, result.sampled, strict=True):
        assert isinstance(sampled, SampledToken)
        s.num_computed_tokens = s.num_tokens
        s.token_ids.append(sampled.token_id)


def test_info_tells_what_was_loaded(model: Path) -> None:
    info = load_runner(model, max_num_seqs=3, block_size=32).info
    assert info.architecture == "Qwen3ForCausalLM"
    assert (info.dtype, info.device) == ("float32", "cpu")
    assert info.vocab_size == VOCABULARY
    assert info.max_model_len == MAX_POSITIONS
    assert info.num_kv_blocks == 3 * MAX_POSITIONS // 32
    assert info.kv_cache_bytes == info.num_kv_blocks * 32 * 3 * 2 * (2 * 32) * 4


def test_progress_passes_through_every_phase_in_order(model: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    config = EngineConfig(model=str(model), threads=1, device="cpu")
    load_model_runner(config, lambda *call: calls.append(call))
    phases = list(dict.fromkeys(phase for phase, _, _ in calls))
    assert phases == ["config", "weights", "kv_cache", "warmup"]
    for phase in phases:
        done, total = [(d, t) for p, d, t in calls if p == phase][-1]
        assert done == total


def test_the_cache_keeps_within_its_memory(model: Path) -> None:
    info = load_runner(model, kv_cache_memory=1 << 20, max_num_seqs=256).info
    assert 0.65 * (1 << 20) < info.kv_cache_bytes <= 0.75 * (1 << 20)  # the rest is the mirror's


def test_a_length_nobody_asked_for_gives_way_to_the_memory(model: Path) -> None:
    info = load_runner(model, num_kv_blocks=5, block_size=16).info
    assert info.max_model_len == 80


def test_a_length_that_was_asked_for_must_fit(model: Path) -> None:
    with pytest.raises(KVCacheTooSmallError, match="lower --max-model-len"):
        load_runner(model, num_kv_blocks=5, block_size=16, max_model_len=81)


def test_a_length_beyond_the_models_positions_is_refused(model: Path) -> None:
    with pytest.raises(ModelError, match=f"{MAX_POSITIONS} positions"):
        load_runner(model, max_model_len=MAX_POSITIONS + 1)


@pytest.mark.parametrize(
    ("variant", "settings", "reason"),
    [
        ("qwen3", {"dtype": "bfloat16"}, "not --dtype bfloat16 on cpu"),
        ("gpt2", {"dtype": "auto"}, "does not support GPT-2"),
    ],
)
def test_int8_where_it_is_not_served_is_refused(
    variant: str, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    save_model(VARIANTS[variant], tmp_path)
    with pytest.raises(ModelError, match=reason):
        load_runner(tmp_path, quantization="int8", **settings)


def test_random_weights_need_no_weight_files_and_follow_the_seed(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=5)

    def first_token(seed: int) -> Any:
        runner = load_runner(tmp_path, load_format="dummy", seed=seed)
        return runner.execute(whole(sequence(1, [1, 2, 3], [0], params))).sampled[0]

    assert first_token(1) == first_token(1)
    assert first_token(1) != first_token(2)
    for top in first_token(1).logprobs.top:
        assert math.log(1 / VOCABULARY) - 2 < top.logprob < math.log(1 / VOCABULARY) + 2


def test_a_plan_run_twice_gives_the_same(model: Path) -> None:
    runner = load_runner(model)
    rows = [sequence(1, [5, 6, 7], [3, 9]), sequence(2, list(range(20)), [1, 0, 7])]
    take(runner.execute(whole(*rows)), *rows)
    for _ in range(20):
        plan = whole(*rows)
        first = runner.execute(plan)
        assert runner.execute(plan) == first
        take(first, *rows)


def test_results_stand_in_the_plans_order_whatever_its_mixture(model: Path) -> None:
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
    """Greedy text of four sequences under changing company equals their text alone."""

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
    """Token 5 embeds to infinity: whoever reads it gets numbers that are none."""
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


def test_parameters_that_contradict_each_other_say_nothing_of_the_models_numbers(
    model: Path,
) -> None:
    """Else any client could make every block be zeroed before reuse from then on."""
    runner = load_runner(model)
    nothing = SamplingParams(
        max_tokens=1, allowed_tokens=token_mask([3]), bad_words_token_ids=((3,),)
    )
    result = runner.execute(whole(sequence(1, [1, 2], [0], nothing), sequence(2, [1, 2], [1])))
    assert isinstance(result.sampled[0], SamplingError)
    assert isinstance(result.sampled[1], SampledToken)
    assert not runner.clears_blocks


def test_prompt_logprobs_of_a_long_prompt_come_in_bounded_pieces(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = load_runner(model)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1)
    prompt = [i * 31 % VOCABULARY for i in range(400)]
    rows: list[int] = []
    decoder_logits = runner._decoder.logits

    def watched(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(hidden.shape[0])
        return decoder_logits(hidden)

    monkeypatch.setattr(runner._decoder, "logits", watched, raising=True)
    result = runner.execute(whole(sequence(1, prompt, list(range(26)), params)))
    assert len(result.prompt_logprobs[0]) == 399
    assert max(rows) <= 256


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
