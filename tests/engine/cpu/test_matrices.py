"""Fused matrices have the rows of their parts, in few bits where all parts are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.architecture.config import ModelConfig, load_model_config
from engine.cpu.library import LibraryUnavailableError, library
from engine.cpu.matrices import embedded, fused_qkv_matrix, gate_up_matrix
from engine.cpu.packed import PackedWeight, interleaved
from engine.model.llama import EMBEDDING, fused_qkv
from engine.run.loader import parameter_shapes
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import QuantisedWeights, matrix, quantise
from tests.engine.tiny_models import VARIANTS, save_model

ATTENTION = "model.layers.1.self_attn."
MLP = "model.layers.1.mlp."
PANEL = 16


class Source:
    """Random weights, some in few bits."""

    def __init__(self, config: ModelConfig, in_floats: str = "", in_nibbles: str = "") -> None:
        self._config = config
        self._shapes = parameter_shapes(config)
        self._in_floats, self._in_nibbles = in_floats, in_nibbles

    def tensor(self, name: str) -> Tensor:
        chance = torch.Generator().manual_seed(list(self._shapes).index(name))
        values = torch.randn(self._shapes[name], generator=chance)
        return values if self.is_float(name) else quantise(values, self._bits(name)).dequantised()

    def grouped(self, name: str) -> GroupedWeight | None:
        chance = torch.Generator().manual_seed(list(self._shapes).index(name))
        values = torch.randn(self._shapes[name], generator=chance)
        return None if self.is_float(name) else quantise(values, self._bits(name))

    def is_float(self, name: str) -> bool:
        return len(self._shapes[name]) != 2 or (self._in_floats != "" and self._in_floats in name)

    def _bits(self, name: str) -> str:
        return "int4" if self._in_nibbles and self._in_nibbles in name else "int8"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    directory: Path = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return load_model_config(directory)


@pytest.mark.parametrize(
    ("in_floats", "in_nibbles"), [("", ""), ("v_proj", ""), ("_proj", ""), ("", "v_proj")]
)
def test_query_key_and_value_are_fused(
    config: ModelConfig, in_floats: str, in_nibbles: str
) -> None:
    source = Source(config, in_floats, in_nibbles)
    found = fused_qkv_matrix(config, source, ATTENTION)
    assert isinstance(found, GroupedWeight) == (not in_floats)
    values = found.dequantised() if isinstance(found, GroupedWeight) else found
    assert torch.equal(values, fused_qkv(config, source, ATTENTION, "weight"))


@pytest.mark.parametrize(
    ("in_floats", "in_nibbles"), [("", ""), ("up_proj", ""), ("_proj", ""), ("", "up_proj")]
)
def test_gate_and_up_take_turns(config: ModelConfig, in_floats: str, in_nibbles: str) -> None:
    source = Source(config, in_floats, in_nibbles)
    found = gate_up_matrix(source, MLP, PANEL)
    assert isinstance(found, GroupedWeight) == (not in_floats)
    values = found.dequantised() if isinstance(found, GroupedWeight) else found
    gate, up = (source.tensor(f"{MLP}{name}_proj.weight") for name in ("gate", "up"))
    assert torch.equal(values, interleaved(gate, up, PANEL))


@pytest.mark.parametrize("in_floats", ["", "embed"])
def test_tokens_are_looked_up_in_either_form(config: ModelConfig, in_floats: str) -> None:
    try:
        opened = library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    source = Source(config, in_floats)
    ids = torch.tensor([5, 0, 5, 150])
    for each in (source, QuantisedWeights(source, "int8")):
        expected = each.tensor(EMBEDDING)[ids]
        embedding = matrix(each, EMBEDDING)
        packed = PackedWeight(embedding, None, opened.panel)
        assert torch.equal(embedded(packed, opened, ids), expected)
        if isinstance(embedding, Tensor):
            assert torch.equal(embedded(embedding, opened, ids), expected)
