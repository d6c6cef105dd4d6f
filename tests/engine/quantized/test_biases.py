"""AutoGPTQ stored a bias with each matrix; zeros change nothing, anything else would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.messages import SamplingParams
from engine.plugin.loading import loaded_model
from engine.plugin.reading import read_plugin_config
from tests.engine.driving import Engine
from tests.engine.plugin.families import save_family
from tests.engine.quantized.making import quantize_directory
from tests.engine.tiny_models import VARIANTS, save_model


def checkpoint(directory: Path) -> Path:
    save_model(VARIANTS["qwen2"], directory)  # queries, keys and values have biases
    quantize_directory(directory, "gptq", 32)
    return directory


def add_biases(directory: Path, value: float = 0.0) -> None:
    """Store a bias with each quantized matrix that has none."""
    path = directory / "model.safetensors"
    stored: dict[str, Tensor] = load_file(path)
    for name in list(stored):
        module, _, own = name.rpartition(".")
        if own == "qweight":
            outputs = stored[name].shape[1]
            stored.setdefault(f"{module}.bias", torch.full((outputs,), value, dtype=torch.float16))
    save_file(stored, path)


def answer(directory: Path) -> tuple[list[int], list[float]]:
    engine = Engine(directory, cpu_path="torch")
    params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=0)
    [output] = engine.generate([[5, 6, 7, 8]], params)
    return output.token_ids, [each.logprob for each in output.logprobs]


def test_zeros_change_nothing(tmp_path: Path) -> None:
    expected = answer(checkpoint(tmp_path))
    add_biases(tmp_path)
    assert answer(tmp_path) == expected


def test_another_value_is_refused_by_name(tmp_path: Path) -> None:
    add_biases(checkpoint(tmp_path), 0.5)
    with pytest.raises(WeightsError, match=r"proj\.bias is not zero, but .* no such bias"):
        Engine(tmp_path, cpu_path="torch")


def test_one_of_another_shape_or_without_a_matrix_is_unexpected(tmp_path: Path) -> None:
    path = checkpoint(tmp_path) / "model.safetensors"
    stored = load_file(path)
    names = ("model.layers.0.mlp.up_proj.bias", "model.norm.bias")
    save_file(stored | {name: torch.zeros(3) for name in names}, path)
    with pytest.raises(WeightsError, match=f"unexpected: .*{names[0]}, {names[1]}$"):
        Engine(tmp_path, cpu_path="torch")


@pytest.mark.parametrize(("value", "said"), [(0.0, ""), (0.5, "is not zero, but by its config")])
def test_the_same_holds_for_transformers_code(tmp_path: Path, value: float, said: str) -> None:
    save_family("olmo", tmp_path)
    quantize_directory(tmp_path, "gptq", 32)
    add_biases(tmp_path, value)
    config = read_plugin_config(tmp_path)
    if said:
        with pytest.raises(WeightsError, match=said):
            loaded_model(config, tmp_path, torch.device("cpu"), torch.float32)
    else:
        loaded_model(config, tmp_path, torch.device("cpu"), torch.float32)
