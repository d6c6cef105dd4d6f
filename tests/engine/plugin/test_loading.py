"""Weights arrive as transformers reads them, or the checkpoint is refused with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.architecture.errors import WeightsError
from engine.plugin.loading import fill_randomly, loaded_model
from engine.plugin.reading import read_plugin_config
from tests.engine.plugin.families import save_family

FEW = ("olmo2", "mixtral", "gpt2", "phi3")
MANY = (
    *("gemma4_text#moe", "qwen3_moe", "gpt_oss", "deepseek_v3", "opt", "cohere2", "granitemoe"),
    *("minimax_m2", "ernie4_5_moe", "glm4_moe", "starcoder2"),
)
CPU = torch.device("cpu")
NORM = "model.norm.weight"


@pytest.mark.parametrize("kind", [*FEW, *(pytest.param(k, marks=pytest.mark.slow) for k in MANY)])
def test_each_parameter_and_buffer_is_that_of_transformers(kind: str, tmp_path: Path) -> None:
    oracle = save_family(kind, tmp_path)
    model = loaded_model(read_plugin_config(tmp_path), tmp_path, CPU, torch.float32)
    for found, expected in (
        (dict(model.named_parameters()), dict(oracle.named_parameters())),
        (dict(model.named_buffers()), dict(oracle.named_buffers())),
    ):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_family("olmo2", tmp_path)
    return tmp_path


def edit(directory: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors, None: remove; dots in names are written as two underscores."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model__norm__weight": None}, f"missing: {NORM}"),
        ({"model__norm__weight": torch.ones(5)}, f"misshapen: {NORM}"),
        ({"model__norm__spare": torch.ones(5)}, "unexpected: model.norm.spare"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    changes: dict[str, torch.Tensor | None], complaint: str, checkpoint: Path
) -> None:
    edit(checkpoint, **changes)
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="do not fit its config") as refused:
        loaded_model(config, checkpoint, CPU, torch.float32)
    assert complaint in str(refused.value)


def test_pickled_weights_are_never_read(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    torch.save(tensors, checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="only safetensors weights are read"):
        loaded_model(config, checkpoint, CPU, torch.float32)


def test_a_file_that_is_cut_short_is_refused_in_a_sentence(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="cannot read"):
        loaded_model(config, checkpoint, CPU, torch.float32)


def test_random_weights_depend_on_the_seed_alone(checkpoint: Path) -> None:
    config = read_plugin_config(checkpoint)
    models = [loaded_model(config, checkpoint, CPU, torch.float32) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        fill_randomly(model, seed)
    name = "model.layers.0.mlp.up_proj.weight"
    first, again, other = (model.get_parameter(name) for model in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(models[0].get_parameter(NORM), torch.ones(64))


def test_the_index_of_a_sharded_checkpoint_may_not_leave_its_directory(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {NORM: "../model.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    config = read_plugin_config(checkpoint)
    with pytest.raises(WeightsError, match="outside its directory"):
        loaded_model(config, checkpoint, CPU, torch.float32)
