"""Quantized checkpoints of models that transformers computes mean what transformers reads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from engine.architecture.errors import ConfigError, WeightsError
from engine.cpu.library import LibraryUnavailableError, library
from engine.messages import SamplingParams
from engine.plugin.loading import loaded_model
from engine.plugin.products import CompiledLinear, Products, weight_bytes
from engine.plugin.reading import read_plugin_config
from tests.engine.driving import Engine
from tests.engine.plugin.families import expected, prompt, save_family
from tests.engine.quantized.making import quantize_directory, quantize_experts

CPU = torch.device("cpu")


def checkpoint(directory: Path, kind: str, name: str) -> PreTrainedModel:
    """Write a checkpoint; what it means, in transformers, is the oracle."""
    oracle = save_family(kind, directory)
    if name == "mxfp4":
        quantize_experts(directory)
    else:
        quantize_directory(directory, name, 32)
    oracle.load_state_dict(load_file(directory / "meaning.safetensors"), strict=False)
    return oracle


def difference(engine: Engine, oracle: PreTrainedModel) -> float:
    return max(differences(engine, oracle))


def differences(engine: Engine, oracle: PreTrainedModel) -> list[float]:
    """Return differences of log-probabilities, as shares of the logits' range."""
    prompt_ids = prompt(40, seed=1)
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    [output] = engine.generate([prompt_ids], params)
    whole = expected(oracle, prompt_ids)
    rows = zip(whole.logprobs, prompt_ids[1:], output.prompt_logprobs, strict=False)
    found = [abs(float(row[token]) - one.logprob) / whole.span for row, token, one in rows]
    assert len(found) == 39
    return found


CASES = [
    ("gpt_oss", "mxfp4", True),
    ("olmo2", "gptq", True),
    ("olmo2", "ct_int8", True),
    ("olmo2", "fp8_blocks", False),
    ("gemma2", "awq", True),
]


@pytest.mark.parametrize(("kind", "name", "few_bits"), CASES)
def test_logits_are_those_of_transformers(
    kind: str, name: str, few_bits: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.set_num_threads(1)
    oracle = checkpoint(tmp_path, kind, name)
    assert difference(Engine(tmp_path, cpu_path="torch", model_impl="transformers"), oracle) < 1e-4
    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        worst = difference(Engine(tmp_path, model_impl="transformers"), oracle)
    assert worst < 0.02
    # Where the weights stay in few bits, the inputs are rounded, too.
    assert (worst > 1e-5) == few_bits
    [said] = [message for message in caplog.messages if "matrices read in few bits" in message]
    assert ("in few bits: 0," not in said) == few_bits


def test_experts_stay_in_few_bits(tmp_path: Path) -> None:
    try:
        products = Products(library(), 1)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    checkpoint(tmp_path, "gpt_oss", "mxfp4")
    config = read_plugin_config(tmp_path)
    floats = loaded_model(config, tmp_path, CPU, torch.float32)
    few = loaded_model(config, tmp_path, CPU, torch.float32, products)
    experts = sum(p.numel() for n, p in floats.named_parameters() if n.endswith("_proj"))
    assert experts
    assert weight_bytes(floats) - weight_bytes(few) > 2 * experts
    assert any(isinstance(part, CompiledLinear) for part in few.modules())


@pytest.mark.parametrize("break_it", ["scales", "config"])
def test_what_does_not_fit_is_refused(break_it: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, "olmo2", "gptq")
    config = tmp_path / "config.json"
    if break_it == "config":
        config.write_text(config.read_text().replace('"bits": 4', '"bits": 3'))
        with pytest.raises(ConfigError, match="quantization_config: bits must be 2, 4 or 8"):
            read_plugin_config(tmp_path)
        return
    config.write_text(config.read_text().replace('"group_size": 32', '"group_size": 64'))
    with pytest.raises(WeightsError, match=r"scales has the shape \[3, 64\] instead of \[2, 64\]"):
        loaded_model(read_plugin_config(tmp_path), tmp_path, CPU, torch.float32)
