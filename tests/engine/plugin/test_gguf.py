"""A GGUF file of gpt-oss gives transformers' model the weights that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.architecture.errors import UnsupportedError, WeightsError
from engine.cpu.library import LibraryUnavailableError, library
from engine.plugin.gguf import GgufTensors
from engine.plugin.loading import loaded_model
from engine.plugin.products import Products
from engine.plugin.reading import read_plugin_config
from tests.engine.driving import Engine
from tests.engine.gguf.directories import file_directory
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference, differences
from tests.engine.tiny_models import VARIANTS, save_model

CPU = torch.device("cpu")


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return tmp_path / "original"


@pytest.fixture
def oracle(original: Path) -> PreTrainedModel:
    return save_family("gpt_oss", original)


def test_each_parameter_is_that_of_the_checkpoint(
    oracle: PreTrainedModel, original: Path, tmp_path: Path
) -> None:
    directory = file_directory(original, tmp_path, "F32")
    model = loaded_model(read_plugin_config(directory), directory, CPU, torch.float32)
    expected = dict(oracle.named_parameters())
    found = dict(model.named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_logits_are_those_of_transformers(
    oracle: PreTrainedModel, original: Path, tmp_path: Path
) -> None:
    directory = file_directory(original, tmp_path, "F32")
    assert difference(Engine(directory, cpu_path="torch"), oracle) < 1e-4


def recording(read: Callable[..., Tensor], names: list[str]) -> Callable[..., Tensor]:
    def recorded(self: GgufTensors, name: str, memory: Tensor | None = None) -> Tensor:
        names.append(name)
        return read(self, name, memory)

    return recorded


@pytest.mark.parametrize("kind", ["MXFP4", "Q8_0"])
def test_experts_stay_in_few_bits(
    kind: str,
    oracle: PreTrainedModel,
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        products = Products(library(), 1)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    directory = file_directory(original, tmp_path, kind)
    config = read_plugin_config(directory)
    assert config.dtype == "bfloat16"
    floats = loaded_model(config, directory, CPU, torch.float32)
    read: list[str] = []
    monkeypatch.setattr(GgufTensors, "read", recording(GgufTensors.read, read))
    loaded_model(config, directory, CPU, torch.float32, products)
    assert read
    assert not any(name.endswith(("gate_up_proj", "down_proj")) for name in read)
    oracle.load_state_dict(floats.state_dict())
    assert difference(Engine(directory, dtype="float32", cpu_path="torch"), oracle) < 1e-4
    # Inputs are rounded to 8 bits, so that some tokens choose other experts.
    assert median(differences(Engine(directory, dtype="float32"), oracle)) < 0.02


def test_model_impl_transformers_is_refused_for_other_architectures(tmp_path: Path) -> None:
    save_model(VARIANTS["qwen3"], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    config = directory / "config.json"
    config.write_text(config.read_text().replace("{", '{"model_type": "qwen3",', 1))
    with pytest.raises(UnsupportedError, match="--model-impl transformers is not supported for"):
        loaded_model(read_plugin_config(directory), directory, CPU, torch.float32)


def test_a_missing_tensor_is_named(original: Path, oracle: PreTrainedModel, tmp_path: Path) -> None:
    directory = file_directory(original, tmp_path, "F32")
    config = read_plugin_config(directory)
    path = directory / "model.gguf"
    damaged = path.read_bytes().replace(b"blk.0.attn_sinks.weight", b"blk.0.attn_sinkz.weight")
    path.unlink()
    path.write_bytes(damaged)
    with pytest.raises(WeightsError, match=r"missing: blk\.0\.attn_sinks\.weight"):
        loaded_model(config, directory, CPU, torch.float32)
