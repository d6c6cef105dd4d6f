"""From a model directory to a decoder or an encoder."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.architecture.config import load_model_config
from engine.architecture.encoder_config import load_encoder_config
from engine.architecture.errors import WeightsError
from engine.config import EngineConfig
from engine.gguf.names import LINK
from engine.messages import SamplingParams
from engine.model.gpt2 import GPT2Model
from engine.model.llama import LlamaModel
from engine.run.loader import (
    DecoderOptions,
    LoadSettings,
    _stores_few_bits_for_gpu,
    described_quantization,
    load_decoder,
    load_encoder,
)
from tests.engine.driving import load_runner
from tests.engine.quantized.making import quantize_directory
from tests.engine.run.plans import sequence, whole
from tests.engine.tiny_encoders import ENCODERS, save_encoder
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, VOCABULARY, save_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


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


@pytest.mark.parametrize("variant", ["qwen3", "llama_tied", "llama_biases", "gpt2"])
def test_parameters_are_counted_as_transformers_counts_them(variant: str, tmp_path: Path) -> None:
    oracle = save_model(VARIANTS[variant], tmp_path)
    told: list[tuple[str, int, int]] = []
    settings = LoadSettings(tmp_path, torch.float32, CPU, lambda *call: told.append(call))
    loaded = load_decoder(load_model_config(tmp_path), settings, DecoderOptions(MAX_POSITIONS))
    assert loaded.num_parameters == sum(p.numel() for p in oracle.parameters())
    assert told[-1] == ("weights", loaded.num_parameters, loaded.num_parameters)
    assert loaded.prompt_logprob_work > 1
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_an_encoder_s_parameters_are_those_that_it_computes_with(tmp_path: Path) -> None:
    oracle = save_encoder(ENCODERS["bert"], tmp_path)
    settings = LoadSettings(tmp_path, torch.float32, CPU, lambda *call: None)
    loaded = load_encoder(load_encoder_config(tmp_path), settings)
    unused = sum(p.numel() for name, p in oracle.named_parameters() if "pooler" in name)
    assert unused
    assert loaded.num_parameters == sum(p.numel() for p in oracle.parameters()) - unused


@pytest.mark.parametrize(
    ("variant", "kind"), [("gpt2", GPT2Model), ("llama", LlamaModel), ("qwen3", LlamaModel)]
)
def test_without_library_and_kernels_torch_computes(
    variant: str, kind: type, tmp_path: Path
) -> None:
    save_model(VARIANTS[variant], tmp_path)
    settings = LoadSettings(tmp_path, torch.float32, CPU, lambda *call: None)
    loaded = load_decoder(load_model_config(tmp_path), settings, DecoderOptions(MAX_POSITIONS))
    assert type(loaded.decoder) is kind


def test_weights_of_keys_that_a_layer_shares_are_let_through_and_others_are_named(
    tmp_path: Path,
) -> None:
    """As in the first checkpoints of Gemma 4."""
    save_model(VARIANTS["gemma4_inputs"], tmp_path)
    path = tmp_path / "model.safetensors"
    spare = {
        f"model.layers.3.self_attn.{name}.weight": torch.ones(2)
        for name in ("k_proj", "v_proj", "k_norm", "v_norm")
    }
    save_file(load_file(path) | spare, path, metadata={"format": "pt"})
    load_runner(tmp_path, model_impl="native")
    wrong = {"model.layers.1.self_attn.v_norm.weight": torch.ones(2)}
    save_file(load_file(path) | wrong, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"unexpected: model\.layers\.1\.self_attn\.v_norm"):
        load_runner(tmp_path, model_impl="native")


def test_a_directory_without_weights_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    with pytest.raises(WeightsError):
        load_runner(tmp_path)


def test_weights_are_described_in_words(model: Path, tmp_path: Path) -> None:
    assert described_quantization(EngineConfig(model=str(model))) == ""
    made = EngineConfig(model=str(model), quantization="int8")
    assert described_quantization(made) == "int8"
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    quantize_directory(tmp_path, "awq", 32)
    stored = EngineConfig(model=str(tmp_path))
    assert described_quantization(stored) == "awq, 4 bits, groups of 32"
    assert load_runner(tmp_path).info.quantization == "awq, 4 bits, groups of 32"
    assert described_quantization(msgspec.structs.replace(stored, load_format="dummy")) == ""
    (tmp_path / LINK).touch()
    assert described_quantization(stored) == "gguf"


KEYS_AND_VALUES = {
    "compressed-tensors": {"format": "naive-quantized", "config_groups": {}},
    "modelopt": {"quant_algo": None, "kv_cache_quant_algo": "FP8"},
}


@pytest.mark.parametrize("model_impl", ["native", "transformers"])
@pytest.mark.parametrize("method", KEYS_AND_VALUES)
def test_a_checkpoint_that_quantizes_only_keys_and_values_is_one_of_floats(
    method: str, model_impl: str, model: Path, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    scales = {
        f"model.layers.0.self_attn.{name}_scale": torch.ones(1) for name in ("k_proj.k", "v_proj.v")
    }
    save_file(load_file(path) | scales, path, metadata={"format": "pt"})
    section = {"quant_method": method, **KEYS_AND_VALUES[method]}
    values = json.loads(config.read_text()) | {"quantization_config": section}
    config.write_text(json.dumps(values))
    found, plain = (load_runner(each, model_impl=model_impl).info for each in (tmp_path, model))
    assert found.quantization == ""
    assert found.num_parameters == plain.num_parameters
    gpu = LoadSettings(tmp_path, torch.float32, torch.device("cuda"), lambda *_: None)
    assert not _stores_few_bits_for_gpu(gpu)


def test_quantization_that_changes_nothing_is_logged(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_runner(model, quantization="int8")
    assert "--quantization" not in caplog.text
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    quantize_directory(tmp_path, "awq", 32)
    load_runner(tmp_path, quantization="int8")
    assert "quantized ones stay as stored (awq, 4 bits, groups of 32)" in caplog.text
