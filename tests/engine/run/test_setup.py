"""What is settled before weights are loaded, and what is refused then."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.architecture.errors import ModelError
from engine.config import LARGE_SIZES, SIZES, EngineConfig, StepSizes
from engine.gpu import availability
from engine.gpu.availability import KernelsUnavailableError
from engine.run.setup import (
    OUR_ATTENTION,
    choose_attention,
    compiled_library,
    has_kernels,
    set_up,
    with_default_sizes,
)
from engine.sharding.collectives import ALONE, Collectives
from tests.engine.driving import load_runner
from tests.engine.ranks.threads import together
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


@pytest.mark.parametrize("eos", [None, 3])
def test_a_model_without_an_end_token_is_served_with_a_warning(
    eos: int | None, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    set_up(EngineConfig(model=str(tmp_path), load_format="dummy"), ALONE)
    assert ("no end-of-sequence token is known" in caplog.text) is (eos is None)


@pytest.mark.parametrize(
    ("kind", "default", "most"),
    [
        ({"rope_type": "yarn", "original_max_position_embeddings": 400}, 1600, 1600),
        ({"rope_type": "dynamic"}, MAX_POSITIONS, 4 * MAX_POSITIONS),  # transformers' code
    ],
    ids=["yarn", "dynamic"],
)
def test_the_longest_sequence_is_the_longest_that_needs_no_other_frequencies(
    model: Path, tmp_path: Path, kind: dict[str, Any], default: int, most: int
) -> None:
    values = json.loads((model / "config.json").read_text())
    values["rope_parameters"] = {"rope_theta": 10_000.0, "factor": 4.0, **kind}
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = EngineConfig(model=str(tmp_path), load_format="dummy", device="cpu", threads=1)
    assert set_up(config, ALONE).max_positions == default
    longest = msgspec.structs.replace(config, max_model_len=most)
    assert set_up(longest, ALONE).max_positions == most
    with pytest.raises(ModelError, match=f"exceeds the model's {most} positions"):
        set_up(msgspec.structs.replace(config, max_model_len=most + 1), ALONE)


@pytest.mark.parametrize("variant", ["qwen3", "mixtral"])
def test_steps_of_prompts_are_short_where_that_costs_nothing(variant: str, tmp_path: Path) -> None:
    save_model(VARIANTS[variant], tmp_path)
    config = EngineConfig(model=str(tmp_path), load_format="dummy", device="cpu", threads=1)
    setup = set_up(config, ALONE)
    assert (setup.step_seconds is None) is (variant == "mixtral")
    on_gpu = dataclasses.replace(setup, device=torch.device("cuda"))
    assert on_gpu.step_seconds is None
    plain = set_up(msgspec.structs.replace(config, cpu_path="torch"), ALONE)
    assert plain.step_seconds is None  # how it is divided may change torch's last bits


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


def test_fp8_without_a_gpu_is_refused(model: Path) -> None:
    with pytest.raises(ModelError, match="on a CPU use int8 or int4"):
        load_runner(model, quantization="fp8")


@pytest.mark.parametrize(
    ("settings", "flag"), [({}, "--kv-cache-memory"), ({"num_kv_blocks": 9}, "--num-kv-blocks")]
)
def test_the_flag_that_sizes_the_cache_is_the_one_that_was_given_or_the_device_s(
    model: Path, settings: dict[str, Any], flag: str
) -> None:
    config = EngineConfig(model=str(model), device="cpu", threads=1, **settings)
    assert set_up(config, ALONE).memory_setting == flag


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        ({}, torch.float32),  # the checkpoint's own
        ({"dtype": "bfloat16"}, torch.bfloat16),
        ({"quantization": "int8"}, torch.float32),
    ],
)
def test_on_a_cpu_steps_do_not_run_ahead_unless_asked_and_dtypes_are_as_asked(
    model: Path, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    config = EngineConfig(model=str(model), device="cpu", threads=1, max_model_len=100, **settings)
    setup = set_up(config, ALONE)
    assert (setup.dtype, setup.max_positions, setup.ranks) == (dtype, 100, 1)
    assert setup.model == setup.whole
    assert not setup.runs_ahead
    asked = msgspec.structs.replace(config, async_scheduling=True)
    assert set_up(asked, ALONE).runs_ahead


@pytest.mark.parametrize(
    "settings", [{"cpu_path": "torch"}, {"dtype": "float16"}, {"kv_cache_dtype": "fp8"}]
)
def test_models_that_the_compiled_code_does_not_support_run_in_torch(
    model: Path, settings: dict[str, Any]
) -> None:
    config = EngineConfig(model=str(model), device="cpu", threads=1, **settings)
    assert compiled_library(set_up(config, ALONE)) is None


def test_a_gpu_that_cannot_run_kernels_computes_in_torch_and_says_why(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unavailable(device: torch.device, *, is_cache_fp8: bool) -> None:
        raise KernelsUnavailableError(f"no compiler, {is_cache_fp8}")

    monkeypatch.setattr(availability, "require_kernels", unavailable)
    config = EngineConfig(model=str(model), device="cpu", threads=1, kv_cache_dtype="fp8")
    on_gpu = dataclasses.replace(set_up(config, ALONE), device=torch.device("cuda", 0))
    assert not has_kernels(on_gpu)
    assert "slower: no compiler, True" in caplog.text
    demanded = msgspec.structs.replace(config, gpu_path="triton")
    with pytest.raises(ModelError, match="--gpu-path triton: no compiler"):
        has_kernels(dataclasses.replace(on_gpu, config=demanded))


def test_kernels_are_for_a_gpu_unless_demanded(model: Path) -> None:
    config = EngineConfig(model=str(model), device="cpu", threads=1)
    assert not has_kernels(set_up(config, ALONE))
    demanded = msgspec.structs.replace(config, gpu_path="triton")
    assert has_kernels(set_up(demanded, ALONE))


@pytest.mark.parametrize("path", ["auto", "triton"])
def test_all_ranks_use_kernels_or_none_does(
    path: str, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = EngineConfig(
        model=str(model), device="cpu", threads=1, tensor_parallel_size=2, gpu_path=path
    )
    broken: list[int] = []

    def available(device: torch.device, *, is_cache_fp8: bool) -> None:
        if device.index in broken:
            raise KernelsUnavailableError("no compiler")

    monkeypatch.setattr(availability, "require_kernels", available)

    def decide(ranks: Collectives) -> bool | str:
        gpu = torch.device("cuda", ranks.shard.rank)
        setup = dataclasses.replace(set_up(config, ranks), device=gpu)
        try:
            return has_kernels(setup)
        except ModelError as error:
            return str(error)

    assert together(2, decide) == [True, True]
    broken.append(1)
    reasons = ["another rank cannot run kernels; its log says why", "no compiler"]
    if path == "triton":
        assert together(2, decide) == [f"--gpu-path triton: {reason}" for reason in reasons]
    else:
        assert together(2, decide) == [False, False]
        assert all(f"slower: {reason}" in caplog.text for reason in reasons)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "needs our GPU kernels, which do not compute this model here"),
        ({"gpu_path": "triton", "deterministic": True}, "not with --deterministic"),
        ({"gpu_path": "triton", "kv_cache_dtype": "fp8"}, "not with --kv-cache-dtype fp8"),
        ({"gpu_path": "triton"}, "cuDNN's attention needs an NVIDIA GPU"),
    ],
)
def test_cudnn_where_it_cannot_attend_is_refused_in_a_sentence(
    model: Path, settings: dict[str, Any], reason: str
) -> None:
    config = EngineConfig(model=str(model), device="cpu", attention="cudnn", **settings)
    setup = set_up(config, ALONE)
    with pytest.raises(ModelError, match=f"--attention cudnn.*{reason}"):
        choose_attention(setup, with_kernels="gpu_path" in settings)


def test_our_own_attention_is_the_default_and_needs_our_kernels_if_demanded(model: Path) -> None:
    config = EngineConfig(model=str(model), device="cpu")
    assert choose_attention(set_up(config, ALONE), with_kernels=False) == OUR_ATTENTION
    demanded = set_up(msgspec.structs.replace(config, attention="triton"), ALONE)
    assert choose_attention(demanded, with_kernels=True) == OUR_ATTENTION
    with pytest.raises(ModelError, match="--attention triton needs our GPU kernels"):
        choose_attention(demanded, with_kernels=False)


@pytest.mark.parametrize(
    ("gib", "with_kernels", "sizes"),
    [
        (80, True, LARGE_SIZES),
        (80, False, SIZES),  # torch copies the contexts of all sequences
        (48, True, SIZES),
        (0, True, SIZES),  # a CPU
    ],
)
def test_a_large_gpu_has_larger_defaults_and_what_is_set_stays(
    gib: int,
    with_kernels: bool,
    sizes: StepSizes,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.run.setup.gpu_memory", lambda device: int(gib * 0.99 * 2**30))
    setup = set_up(EngineConfig(model=str(model), device="cpu", threads=1), ALONE)
    assert with_default_sizes(setup, with_kernels=with_kernels).sizes == sizes
    asked = msgspec.structs.replace(setup.config, max_num_seqs=64, block_size=16)
    setup = dataclasses.replace(setup, config=asked)
    found = with_default_sizes(setup, with_kernels=with_kernels).sizes
    assert found == StepSizes(64, sizes.max_num_batched_tokens, 16)


def test_all_ranks_have_the_same_defaults(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "engine.run.setup.gpu_memory", lambda device: (80 << 30) >> int(device.index)
    )
    config = EngineConfig(model=str(model), device="cpu", threads=1, tensor_parallel_size=2)

    def defaults(ranks: Collectives) -> StepSizes:
        device = torch.device("cuda", ranks.shard.rank)
        setup = dataclasses.replace(set_up(config, ranks), device=device)
        return with_default_sizes(setup, with_kernels=True).default_sizes

    assert together(2, defaults) == [SIZES, SIZES]


def test_a_loaded_model_says_the_defaults_of_its_device(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"gpu_path": "triton", "num_kv_blocks": 8, "cuda_graphs": False}
    assert load_runner(model, **settings).info.default_sizes == SIZES
    monkeypatch.setattr("engine.run.setup.gpu_memory", lambda device: 80 << 30)
    info = load_runner(model, **settings).info
    assert (info.default_sizes, info.block_size) == (LARGE_SIZES, 64)
