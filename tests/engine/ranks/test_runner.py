"""A model on several ranks gives the tokens and logprobs that transformers gives, and that one
process gives, whatever is asked of it.

Variants that differ in what is divided run with their ranks as threads, in no time; some, and in
the slow tests all, as processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from engine.messages import (
    FinishReason,
    SamplingParams,
    token_mask,
)
from tests.engine.driving import Engine, Output
from tests.engine.embedding import Embedder
from tests.engine.ranks.processes import process_engine
from tests.engine.ranks.threads import threaded_engine
from tests.engine.test_parity import (
    GREEDY,
    LENGTH,
    assert_greedy,
    assert_logprobs,
    oracle_logprobs,
    prompt,
)
from tests.engine.tiny_models import VARIANTS, save_model

Start = Callable[..., AbstractContextManager[Engine]]


@dataclass(frozen=True)
class Subject:
    directory: Path
    oracle: PreTrainedModel
    size: int
    start: Start
    ahead: bool = False

    def engine(self, **settings: Any) -> AbstractContextManager[Engine]:
        return self.start(self.directory, self.size, async_scheduling=self.ahead, **settings)


def subject_of(
    name: str, size: int, start: Start, directory: Path, *, ahead: bool = False
) -> Subject:
    torch.set_num_threads(1)
    return Subject(directory, save_model(VARIANTS[name], directory), size, start, ahead)


# Variants whose parameters or attention differ; the slow test below has the others too.
DIVIDED = (
    *("llama_tied", "llama_biases", "llama_sharded", "mistral_sliding_window"),
    *(
        "qwen2_sliding_upper_layers",
        "qwen3_tied_biases",
        "gpt2",
        "smollm3",
        "ministral3",
        "qwen3_moe",
    ),
)
# Have what ranks do not divide.
WHOLE = (
    *("phi3_partial", "phi3_long", "granite", "olmo2", "olmo3", "gemma3"),
    *("mixtral", "olmoe", "gemma4", "gemma4_inputs", "gemma4_experts", "llama4"),
)
# Two and four ranks of each key head.
REPEATED = (("llama_multi_query", 2), ("llama_multi_query", 4), ("qwen3_tied_biases", 4))
# Launching ahead changes nothing inside a pass.
AHEAD = ("qwen3", "gpt2")
THREADED = (
    *((name, 2, False) for name in DIVIDED),
    *((name, size, False) for name, size in REPEATED),
    *((name, 2, True) for name in AHEAD),
)


@pytest.fixture(
    scope="module", params=THREADED, ids=lambda param: f"{param[0]}-{param[1]}{'-ahead' * param[2]}"
)
def threaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    name, size, ahead = request.param
    directory = tmp_path_factory.mktemp(name)
    return subject_of(name, size, threaded_engine, directory, ahead=ahead)


def check_alone(subject: Subject) -> None:
    prompt_ids = prompt(45, seed=1)
    params = SamplingParams(max_tokens=LENGTH, temperature=0.0, logprobs=3, prompt_logprobs=2)
    with subject.engine() as engine:
        [output] = engine.generate([prompt_ids], params)
    assert_greedy(subject.oracle, prompt_ids, output)
    expected = oracle_logprobs(subject.oracle, prompt_ids + output.token_ids)
    last = len(prompt_ids) - 1
    assert_logprobs(expected[last:-1], output.token_ids, output.logprobs)
    assert_logprobs(expected[:last], prompt_ids[1:], output.prompt_logprobs)


def check_mixed(subject: Subject) -> None:
    """With chunks, prefix hits and preemption; by the exchange of best tokens only."""
    shared, first = prompt(50, seed=2), prompt(9, seed=3)
    prompts = [shared + prompt(17, seed=4), prompt(1, seed=5), shared + first, prompt(38, seed=6)]
    with subject.engine(block_size=8, num_kv_blocks=72, max_num_batched_tokens=23) as engine:
        engine.generate([shared + first], SamplingParams(max_tokens=1, temperature=0.0))
        outputs = engine.generate(prompts, GREEDY)
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        assert_greedy(subject.oracle, prompt_ids, output)
    records = [output.finished for output in outputs]
    assert sum(record.preemptions for record in records if record) > 0
    assert records[0] is not None
    assert records[0].cached_tokens == 48  # whole blocks of the shared prefix


def test_a_sequence_alone_equals_transformers_in_tokens_and_logprobs(threaded: Subject) -> None:
    check_alone(threaded)


def test_mixed_batches_with_chunks_prefix_hits_and_preemption_equal_transformers(
    threaded: Subject,
) -> None:
    check_mixed(threaded)


def test_ranks_that_are_processes_equal_transformers(tmp_path: Path) -> None:
    check_mixed(subject_of("qwen3_tied_biases", 2, process_engine, tmp_path))


def test_four_processes_with_one_key_head_equal_transformers(tmp_path: Path) -> None:
    subject = subject_of("llama_multi_query", 4, process_engine, tmp_path)
    prompts = [prompt(5, seed=1), prompt(30, seed=2)]
    params = SamplingParams(max_tokens=24, temperature=0.0)
    with process_engine(tmp_path, 4) as engine:
        outputs = engine.generate(prompts, params)
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        rows = oracle_logprobs(subject.oracle, prompt_ids + output.token_ids).argmax(dim=-1)
        assert output.token_ids == rows[len(prompt_ids) - 1 : -1].tolist()
        assert len(output.token_ids) == 24


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("name", ["qwen3_tied_biases", "gpt2"])
def test_two_gpus_equal_transformers(name: str, tmp_path: Path) -> None:
    """By NCCL, one step ahead as by default there."""

    def start(directory: Path, size: int, **settings: Any) -> AbstractContextManager[Engine]:
        return process_engine(directory, size, **(settings | {"device": "cuda"}))

    subject = subject_of(name, 2, start, tmp_path, ahead=True)
    check_alone(subject)
    check_mixed(subject)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in WHOLE])
def test_every_variant_on_processes_equals_transformers(name: str, tmp_path: Path) -> None:
    subject = subject_of(name, 2, process_engine, tmp_path)
    check_alone(subject)
    check_mixed(subject)


# --- sampling -----------------------------------------------------------------------------------

# With a batch of all of them, each row's wish is met as if it were alone.
WISHES = [
    SamplingParams(max_tokens=60, seed=11, temperature=1.5),
    SamplingParams(max_tokens=60, seed=12, top_k=40, top_p=0.95, min_p=0.01, logprobs=5),
    SamplingParams(max_tokens=60, seed=13, repetition_penalty=1.1, frequency_penalty=0.2),
    SamplingParams(max_tokens=60, temperature=0.0, logit_bias={7: 3.0, 150: 40.0, 149: 40.0}),
    SamplingParams(max_tokens=60, temperature=0.0, logit_bias=dict.fromkeys(range(151), -2.0)),
    SamplingParams(max_tokens=60, temperature=0.0, allowed_tokens=token_mask((3, 80, 150))),
    SamplingParams(max_tokens=60, temperature=0.0),
]


def generate_wishes(engine: Engine) -> list[Output]:
    prompts = [prompt(9 + 5 * i, seed=40 + i) for i in range(len(WISHES))]
    return engine.generate(prompts, WISHES)


@pytest.mark.parametrize("ahead", [False, True], ids=["", "one step ahead"])
@pytest.mark.parametrize("start", [threaded_engine, process_engine])
def test_seeds_and_every_other_wish_give_what_one_process_gives(
    start: Start, ahead: bool, tmp_path: Path
) -> None:
    subject = subject_of("qwen3", 2, start, tmp_path, ahead=ahead)
    expected = generate_wishes(Engine(tmp_path, cpu_path="torch"))
    with subject.engine() as engine:
        found = generate_wishes(engine)
    assert [output.token_ids for output in found] == [output.token_ids for output in expected]
    for mine, theirs in zip(found[1].logprobs, expected[1].logprobs, strict=True):
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)


def test_dummy_weights_are_those_of_one_process(tmp_path: Path) -> None:
    save_model(VARIANTS["llama"], tmp_path)
    settings = {"load_format": "dummy", "seed": 5}
    params = SamplingParams(max_tokens=20, temperature=0.0, logprobs=0)
    [expected] = Engine(tmp_path, cpu_path="torch", **settings).generate([[1, 2, 3]], params)
    with threaded_engine(tmp_path, 2, **settings) as engine:
        [found] = engine.generate([[1, 2, 3]], params)
    assert found.token_ids == expected.token_ids


def test_a_model_says_how_many_share_it_and_what_they_hold_together(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["qwen3"], tmp_path)
    alone = Engine(tmp_path, num_kv_blocks=64).core.info
    with threaded_engine(tmp_path, 2, num_kv_blocks=64) as engine:
        info = engine.core.info
    assert (alone.tensor_parallel_size, info.tensor_parallel_size) == (1, 2)
    assert info.num_parameters == alone.num_parameters == oracle.num_parameters()
    assert info.kv_cache_bytes == alone.kv_cache_bytes
    assert info.num_kv_blocks == 64


def test_the_memory_for_the_kv_cache_is_that_of_all_ranks(tmp_path: Path) -> None:
    save_model(VARIANTS["qwen3"], tmp_path)
    budget = {"kv_cache_memory": 1 << 20, "max_num_seqs": 256}
    alone = Engine(tmp_path, cpu_path="torch", **budget).core.info
    with threaded_engine(tmp_path, 2, **budget) as engine:
        info = engine.core.info
    assert info.num_kv_blocks == alone.num_kv_blocks


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_vectors_are_those_of_one_process(pooling: str, tmp_path: Path) -> None:
    """Beside a sequence that generates, in chunks: every rank keeps the same rows."""
    save_model(VARIANTS["qwen2"], tmp_path)
    settings = {"pooling": pooling, "max_num_batched_tokens": 24}

    def run(engine: Engine) -> Embedder:
        embedder = Embedder(engine.core)
        embedder.generate(prompt(10, seed=1), 20)
        for seed, length in enumerate((1, 50, 24)):
            embedder.embed(prompt(length, seed))
        embedder.run()
        return embedder

    expected = run(Engine(tmp_path, cpu_path="torch", **settings))
    with threaded_engine(tmp_path, 2, **settings) as engine:
        found = run(engine)
    assert found.tokens == expected.tokens
    assert len(found.vectors) == 3
    for handle, vector in found.vectors.items():
        assert vector == pytest.approx(expected.vectors[handle], abs=1e-5)


# --- NaN and infinity -----------------------------------------------------------------------------


@pytest.mark.parametrize("logprobs", [None, 0], ids=["seen by all", "seen by rank 0"])
def test_a_sequence_of_nan_fails_alone_and_its_blocks_can_be_used_again(
    logprobs: int | None, tmp_path: Path
) -> None:
    """Every rank must zero its part of them before they are used again."""
    save_model(VARIANTS["llama"], tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][5] = math.inf  # token 5 causes NaN
    save_file(tensors, path)
    flawed = SamplingParams(max_tokens=30, temperature=0.0, logprobs=logprobs)
    careful = SamplingParams(max_tokens=30, temperature=0.0, logit_bias={5: -100.0})

    def run(engine: Engine) -> list[Output]:
        first = engine.generate([[5] * 40, [1, 2, 3]], flawed)
        # So few blocks that these get the ones of the failed sequence.
        # Of different lengths: the shorter ones' last blocks have slots that are masked.
        return first + engine.generate([[10 + i] * (20 - i) for i in range(4)], careful)

    few = {
        "num_kv_blocks": 20,
        "block_size": 8,
        "max_model_len": 80,
        "enable_prefix_caching": False,
    }
    expected = run(Engine(tmp_path, cpu_path="torch", **few))
    with threaded_engine(tmp_path, 2, **few) as engine:
        found = run(engine)
    assert found[0].finished is not None
    assert found[0].finished.reason is FinishReason.ERROR
    assert "NaN" in str(found[0].finished.error)
    assert [output.token_ids for output in found] == [output.token_ids for output in expected]
    assert all(len(output.token_ids) == 30 for output in found[1:])
