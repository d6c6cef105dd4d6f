"""Tensors that a family stores differently are found, and become those of a Llama."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.architecture.config import load_model_config
from engine.model.parameters import parameter_shapes
from engine.weights.experts import ExpertWeights, stacked_shapes
from engine.weights.families import FamilyWeights, stored_name, stored_shapes
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import quantise
from engine.weights.weights import CheckpointWeights
from tests.engine.tiny_models import VARIANTS, save_model

# Other tests have their weights.
ELSEWHERE = ("gpt2", "gpt2_scaled_by_depth", "llama_sharded", "gemma4_experts", "llama4")


class Stored:
    """Tensors of which each is taken once."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.left = dict(tensors)

    def tensor(self, name: str) -> Tensor:
        return self.left.pop(name)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ELSEWHERE])
def test_every_tensor_of_a_checkpoint_is_read_once(name: str, tmp_path: Path) -> None:
    save_model(VARIANTS[name], tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    tensors = load_file(tmp_path / "model.safetensors")
    expected = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert stored_shapes(shapes, config) == expected
    source = Stored(tensors)
    weights = FamilyWeights(source, shapes, config)
    found = {name: weights.tensor(name) for name in shapes}
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == shapes
    assert not source.left
    assert not weights._held


def test_fused_projections_are_parted_and_norms_are_offset_in_float32(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["phi3_partial"], tmp_path)
    config = load_model_config(tmp_path)
    weights = FamilyWeights(Stored(oracle.state_dict()), parameter_shapes(config), config)
    layer = oracle.model.layers[1]
    key = weights.tensor("model.layers.1.self_attn.k_proj.weight")
    assert torch.equal(key, layer.self_attn.qkv_proj.weight[64:96])
    up = weights.tensor("model.layers.1.mlp.up_proj.weight")
    assert torch.equal(up, layer.mlp.gate_up_proj.weight[80:])

    oracle = save_model(VARIANTS["gemma3"], tmp_path).bfloat16()
    config = load_model_config(tmp_path)
    weights = FamilyWeights(Stored(oracle.state_dict()), parameter_shapes(config), config)
    norm = weights.tensor("model.layers.0.self_attn.k_norm.weight")
    assert torch.equal(norm, 1 + oracle.model.layers[0].self_attn.k_norm.weight.float())
    assert weights.tensor("model.layers.0.self_attn.k_proj.weight").dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["gemma4", "gemma4_inputs", "gemma4_experts"])
def test_each_parameter_of_gemma_4_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    state = save_model(VARIANTS[name], tmp_path).state_dict()
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    named = stored_shapes(shapes, config)
    with CheckpointWeights(
        tmp_path,
        stacked_shapes(named, config.expert_storage),
        unused=[],
        dtype=torch.float32,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    ) as checkpoint:
        experts = ExpertWeights(checkpoint, named, config.expert_storage)
        weights = FamilyWeights(experts, shapes, config)
        found = {name: weights.tensor(name) for name in shapes}
    count = 0
    for name in shapes:
        if ".mlp.experts." not in name:
            count += 1
            assert torch.equal(found[name], state[stored_name(name, config)])
    for layer in range(config.num_layers if config.experts else 0):
        count += 2
        gate_up, down = (
            state[f"model.layers.{layer}.experts.{part}_proj"] for part in ("gate_up", "down")
        )
        for number in range(8):
            prefix = f"model.layers.{layer}.mlp.experts.{number}."
            gate, up = (found[f"{prefix}{part}_proj.weight"] for part in ("gate", "up"))
            assert torch.equal(torch.cat((gate, up)), gate_up[number])
            assert torch.equal(found[prefix + "down_proj.weight"], down[number])
    assert count == len(state)


def test_each_parameter_of_llama_4_is_that_of_transformers(tmp_path: Path) -> None:
    state = save_model(VARIANTS["llama4"], tmp_path).state_dict()
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    named = stored_shapes(shapes, config)
    stored = stacked_shapes(named, config.expert_storage)
    assert stored == {name: tuple(tensor.shape) for name, tensor in state.items()}
    source = Stored(state)
    experts = ExpertWeights(source, named, config.expert_storage)  # type: ignore[arg-type]
    weights = FamilyWeights(experts, shapes, config)
    state = dict(state)
    for name, shape in shapes.items():
        found = weights.tensor(name)
        assert found.shape == shape
        if ".mlp.experts." not in name:
            assert torch.equal(found, state[stored_name(name, config)])
            continue
        prefix, _, rest = stored_name(name, config).partition(".experts.")
        number, kind = int(rest.split(".")[0]), rest.split(".")[1]
        gate, up = state[f"{prefix}.experts.gate_up_proj"][number].chunk(2, dim=1)
        down = state[f"{prefix}.experts.down_proj"][number]
        expected = {"gate_proj": gate, "up_proj": up, "down_proj": down}[kind]
        assert torch.equal(found, expected.t())
    assert not source.left


class InFewBits(Stored):
    """The same, of which matrices are quantized."""

    def grouped(self, name: str) -> GroupedWeight | None:
        if self.left[name].dim() != 2 or "embed" in name:
            return None
        return quantise(self.left.pop(name), "int8")


def test_fused_projections_are_parted_in_few_bits(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["phi3_partial"], tmp_path)
    config = load_model_config(tmp_path)
    shapes = parameter_shapes(config)
    source = InFewBits(oracle.state_dict())
    weights = FamilyWeights(source, shapes, config)
    whole = quantise(oracle.model.layers[1].self_attn.qkv_proj.weight.data, "int8").dequantised()
    for name, shape in shapes.items():
        found = weights.grouped(name)
        assert (found is None) == (len(shape) == 1 or "embed" in name)
        if found is None:
            assert weights.tensor(name).shape == shape
        elif name == "model.layers.1.self_attn.k_proj.weight":
            assert torch.equal(found.dequantised(), whole[64:96])
        else:
            assert found.shape == shape
    assert not source.left
    assert not weights._held_few
    assert (
        FamilyWeights(Stored(oracle.state_dict()), shapes, config).grouped("model.norm.weight")
        is None
    )
