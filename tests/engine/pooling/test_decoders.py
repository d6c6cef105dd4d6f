"""A decoder's vectors are transformers' last hidden states, pooled, however they were computed."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModel, PreTrainedModel

from engine.architecture.errors import ConfigError
from engine.loop.core import EngineCore
from engine.messages import FinishReason
from tests.engine.driving import load_runner
from tests.engine.embedding import CONNECTION, Embedder, distance
from tests.engine.plugin.families import save_family
from tests.engine.plugin.image_text import save_image_text
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model

FAMILIES = {
    "llama": "llama",
    "mistral": "mistral_sliding_window",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gpt2": "gpt2",
}
# The others, of which each has layers or files that differ from theirs.
HEADLESS = (
    *("smollm3", "phi3_partial", "granite", "olmo2", "olmo3", "gemma3", "ministral", "ministral3"),
    *("mixtral", "olmoe", "qwen3_moe", "gemma4", "gemma4_inputs", "gemma4_experts"),
    "llama4",
)
POOLINGS = ("mean", "last", "cls")


def text(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


TEXTS = [text(length, seed) for seed, length in enumerate((1, 90, 7, 33, 16, 64))]


def embedder(model: Path, **settings: Any) -> Embedder:
    budget = settings.get("max_num_batched_tokens", 2048)
    core = EngineCore(
        load_runner(model, **settings), max_num_seqs=16, max_num_batched_tokens=budget
    )
    return Embedder(core)


def pooled(oracle: PreTrainedModel, token_ids: list[int], pooling: str) -> NDArray[np.float32]:
    """What sentence-transformers would make of transformers' own states, before it normalises."""
    with torch.inference_mode():
        states = oracle(torch.tensor([token_ids])).last_hidden_state[0]
    vector = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[pooling]
    values: NDArray[np.float32] = vector.numpy()
    return values


@pytest.fixture(scope="module", params=FAMILIES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, PreTrainedModel]:
    directory = tmp_path_factory.mktemp(request.param)
    save_model(VARIANTS[FAMILIES[request.param]], directory)
    return directory, AutoModel.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("budget", [2048, 16], ids=["whole", "chunked"])
def test_pooled_states_equal_transformers(
    family: tuple[Path, PreTrainedModel], pooling: str, budget: int
) -> None:
    directory, oracle = family
    engine = embedder(directory, pooling=pooling, max_num_batched_tokens=budget)
    for token_ids, vector in zip(TEXTS, engine.vectors_of(TEXTS, activate=False), strict=True):
        expected = pooled(oracle, token_ids, pooling)
        assert distance(vector, expected) < 1e-5
        np.testing.assert_allclose(vector, expected, atol=2e-3)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_texts_embedded_amid_generation_leave_both_as_they_are_alone(
    family: tuple[Path, PreTrainedModel], pooling: str
) -> None:
    directory, oracle = family
    settings = {"pooling": pooling, "max_num_batched_tokens": 24}
    alone = embedder(directory, **settings)
    first = alone.generate(text(20, 50), 40)
    alone.run()
    engine = embedder(directory, **settings)
    prompt = engine.generate(text(20, 50), 40)
    handles = [engine.embed(token_ids, activate=False) for token_ids in TEXTS]
    engine.run()
    assert engine.tokens[prompt] == alone.tokens[first]
    for handle, token_ids in zip(handles, TEXTS, strict=True):
        assert distance(engine.vectors[handle], pooled(oracle, token_ids, pooling)) < 1e-5


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    directory = tmp_path_factory.mktemp("qwen")
    save_model(VARIANTS["qwen3"], directory)
    return directory, AutoModel.from_pretrained(directory, dtype=torch.float32).eval()


@pytest.mark.parametrize(("pooling", "reused"), [("mean", 0), ("cls", 0), ("last", 64)])
def test_a_known_prefix_is_reused_only_where_the_last_token_is_all_that_counts(
    qwen: tuple[Path, PreTrainedModel], pooling: str, reused: int
) -> None:
    directory, oracle = qwen
    engine = embedder(directory, pooling=pooling)
    first, second = text(70, 1), text(70, 1) + text(9, 2)
    engine.vectors_of([first])
    [vector] = engine.vectors_of([second])
    assert distance(vector, pooled(oracle, second, pooling)) < 1e-5
    assert engine.finished[1].cached_tokens == reused


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_preempted_text_counts_each_token_once(
    qwen: tuple[Path, PreTrainedModel], pooling: str
) -> None:
    directory, oracle = qwen
    engine = embedder(directory, pooling=pooling, max_num_batched_tokens=16)
    long = text(90, 3)
    handle = engine.embed(long)
    engine.take(engine.core.step()[CONNECTION])
    engine.take(engine.core.step()[CONNECTION])
    [entry] = engine.core._ledger.entries()
    engine.core.scheduler.preempt(entry.sequence)  # type: ignore[union-attr]  # a decoder's
    engine.core.scheduler.max_num_batched_tokens = 23  # so that it is cut elsewhere than before
    engine.run()
    assert engine.finished[handle].preemptions == 1
    assert distance(engine.vectors[handle], pooled(oracle, long, pooling)) < 1e-5


def test_a_step_run_again_counts_each_token_once(
    qwen: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, oracle = qwen
    engine = embedder(directory, pooling="mean", max_num_batched_tokens=16)
    execute, failures = engine.core.runner.execute, [1, 0, 1]

    def flaky(plan: Any) -> Any:
        result = execute(plan)
        if failures and failures.pop():
            raise RuntimeError("a step that fails after its work is done")
        return result

    monkeypatch.setattr(engine.core.runner, "execute", flaky)
    long = text(60, 4)
    [vector] = engine.vectors_of([long])
    assert distance(vector, pooled(oracle, long, "mean")) < 1e-5


def test_vectors_have_length_one_unless_refused_and_may_be_cut(
    qwen: tuple[Path, PreTrainedModel],
) -> None:
    directory, oracle = qwen
    engine = embedder(directory)
    token_ids = text(20, 5)
    expected = pooled(oracle, token_ids, "last")  # a decoder's default
    [unit] = engine.vectors_of([token_ids])
    [cut] = engine.vectors_of([token_ids], dimensions=16)
    [raw] = engine.vectors_of([token_ids], dimensions=16, activate=False)
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected), atol=1e-4)
    np.testing.assert_allclose(cut, expected[:16] / np.linalg.norm(expected[:16]), atol=1e-4)
    np.testing.assert_allclose(raw, expected[:16], atol=2e-3)


def test_a_checkpoint_without_a_head_embeds_and_generates_nothing(
    qwen: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    _, oracle = qwen
    oracle.save_pretrained(tmp_path)
    engine = embedder(tmp_path)
    assert engine.core.info.architecture == "Qwen3Model"
    assert not engine.core.info.generates
    [vector] = engine.vectors_of([text(20, 6)])
    assert distance(vector, pooled(oracle, text(20, 6), "last")) < 1e-5
    handle = engine.generate([1, 2, 3], 4)
    engine.run()
    assert engine.finished[handle].error == "Qwen3Model does not generate"


def assert_embeds_without_a_head(directory: Path, implementation: str) -> None:
    """``directory``: of a checkpoint with a head."""
    oracle = AutoModel.from_pretrained(directory, dtype=torch.float32).eval()
    bare = directory / "bare"
    oracle.save_pretrained(bare)
    engine = embedder(bare, max_num_batched_tokens=16)
    info = engine.core.info
    assert (info.architecture, info.generates) == (type(oracle).__name__, False)
    assert info.implementation == implementation
    for token_ids, vector in zip(TEXTS, engine.vectors_of(TEXTS, activate=False), strict=True):
        expected = pooled(oracle, token_ids, "last")
        assert distance(vector, expected) < 1e-5
        assert np.abs(vector - expected).max() < 1e-4 * np.ptp(expected)


@pytest.mark.parametrize("variant", HEADLESS)
def test_a_family_embeds_without_a_head(variant: str, tmp_path: Path) -> None:
    save_model(VARIANTS[variant], tmp_path)
    assert_embeds_without_a_head(tmp_path, "native")


@pytest.mark.parametrize("kind", ["gemma2", "olmo", "qwen2_moe", "lfm2"])
def test_what_transformers_code_computes_embeds_without_a_head(kind: str, tmp_path: Path) -> None:
    save_family(kind, tmp_path)
    assert_embeds_without_a_head(tmp_path, "transformers")


def without_head(directory: Path) -> None:
    """config.json still describes the head, as it does in some published embedding models."""
    path = directory / "model.safetensors"
    tensors = {name: each for name, each in load_file(path).items() if "lm_head" not in name}
    assert len(tensors) < len(load_file(path))
    save_file(tensors, path, metadata={"format": "pt"})


def assert_embeds_but_never_generates(directory: Path, oracle: Any, **settings: Any) -> None:
    engine = embedder(directory, **settings)
    assert not engine.core.info.generates
    assert engine.core.info.architecture == oracle.config.architectures[0]
    for token_ids, vector in zip(TEXTS, engine.vectors_of(TEXTS, activate=False), strict=True):
        assert distance(vector, pooled(oracle, token_ids, "last")) < 1e-5
    handle = engine.generate([1, 2, 3], 4)
    engine.run()
    assert "does not generate" in (engine.finished[handle].error or "")


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
@pytest.mark.parametrize("has_prefix", [True, False])
def test_a_head_that_only_config_json_has_is_left_out(
    model_impl: str, has_prefix: bool, tmp_path: Path
) -> None:
    whole = save_model(VARIANTS["qwen3"], tmp_path)
    if not has_prefix:  # as transformers saves the body alone
        described = (tmp_path / "config.json").read_text()
        whole.base_model.save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(described)
    else:
        without_head(tmp_path)
    oracle = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_embeds_but_never_generates(tmp_path, oracle, model_impl=model_impl)


def test_a_head_that_only_config_json_has_is_left_out_of_what_transformers_computes(
    tmp_path: Path,
) -> None:
    save_family("olmo", tmp_path)
    without_head(tmp_path)
    oracle = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_embeds_but_never_generates(tmp_path, oracle)


def test_the_language_model_of_an_image_text_checkpoint_without_a_head_embeds(
    tmp_path: Path,
) -> None:
    save_image_text("qwen3_vl:qwen3_vl_text", tmp_path, is_tied=False)
    without_head(tmp_path)
    oracle = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_embeds_but_never_generates(tmp_path, oracle)


def test_random_weights_have_the_head_that_config_json_describes(tmp_path: Path) -> None:
    save_model(VARIANTS["qwen3"], tmp_path)
    without_head(tmp_path)
    for model_impl in ("native", "transformers"):
        assert load_runner(tmp_path, load_format="dummy", model_impl=model_impl).info.generates


def test_a_text_that_cannot_be_embedded_ends_alone(qwen: tuple[Path, PreTrainedModel]) -> None:
    directory, _ = qwen
    engine = embedder(directory, max_model_len=64)
    good = engine.embed(text(64, 7))
    bad = [
        engine.embed([]),
        engine.embed(text(65, 8)),
        engine.embed([VOCABULARY]),
        engine.embed([1], dimensions=65),
    ]
    engine.run()
    assert good in engine.vectors
    reasons = [engine.finished[handle].error or "" for handle in bad]
    for reason, word in zip(reasons, ("no tokens", "65 tokens", "vocabulary", "65"), strict=True):
        assert word in reason
    assert all(engine.finished[handle].is_refusal for handle in bad)
    assert not set(bad) & set(engine.vectors)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_nan_and_infinity_fail_only_their_own_text(
    qwen: tuple[Path, PreTrainedModel], tmp_path: Path, pooling: str
) -> None:
    _, oracle = qwen
    oracle.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["embed_tokens.weight"][5] = math.inf  # token 5 makes every result infinite or NaN
    save_file(tensors, tmp_path / "model.safetensors")
    engine = embedder(tmp_path, pooling=pooling)
    good_text = [token for token in text(40, 11) if token != 5]
    bad, good = engine.embed([5, 1, 2, 3]), engine.embed(good_text)
    engine.run()
    assert "not finite" in (engine.finished[bad].error or "")
    assert distance(engine.vectors[good], pooled(oracle, good_text, pooling)) < 1e-5
    [later] = engine.vectors_of([good_text])  # in the blocks that held them
    assert distance(later, engine.vectors[good]) < 1e-5


def test_an_abort_ends_a_text_between_its_chunks_and_frees_all(
    qwen: tuple[Path, PreTrainedModel],
) -> None:
    directory, _ = qwen
    engine = embedder(directory, pooling="mean", max_num_batched_tokens=16)
    handle = engine.embed(text(90, 9))
    engine.take(engine.core.step()[CONNECTION])
    engine.core.abort(CONNECTION, [handle])
    engine.run()
    assert engine.finished[handle].reason is FinishReason.ABORT
    assert engine.core.stats().kv_blocks_active == 0
    assert handle not in engine.vectors


def declare(directory: Path, pooling: dict[str, Any], *modules: str) -> None:
    chain = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    for index, kind in enumerate(("Pooling", *modules), 1):
        chain.append({"idx": index, "path": f"{index}_{kind}", "type": f"any.where.{kind}"})
    (directory / "modules.json").write_text(json.dumps(chain))
    folder = directory / "1_Pooling"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(pooling))


def test_the_checkpoint_says_how_it_is_pooled(
    qwen: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    _, oracle = qwen
    oracle.save_pretrained(tmp_path)
    token_ids = text(20, 10)
    declare(tmp_path, {"pooling_mode_mean_tokens": True})
    [raw] = embedder(tmp_path).vectors_of([token_ids])
    np.testing.assert_allclose(raw, pooled(oracle, token_ids, "mean"), atol=2e-3)
    declare(tmp_path, {"pooling_mode": "cls"}, "Normalize")
    [unit] = embedder(tmp_path).vectors_of([token_ids])
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)
    assert distance(unit, pooled(oracle, token_ids, "cls")) < 1e-5


@pytest.mark.parametrize(
    ("pooling", "modules", "words"),
    [
        ({"pooling_mode_max_tokens": True}, (), "pooling max is not supported"),
        ({"pooling_mode_mean_tokens": True}, ("Dense",), "has Dense; supported"),
    ],
)
def test_a_pooling_that_is_not_served_is_said_at_the_start(
    qwen: tuple[Path, PreTrainedModel],
    tmp_path: Path,
    pooling: dict[str, Any],
    modules: tuple[str, ...],
    words: str,
) -> None:
    qwen[1].save_pretrained(tmp_path)
    declare(tmp_path, pooling, *modules)
    with pytest.raises(ConfigError, match=words):
        embedder(tmp_path)
