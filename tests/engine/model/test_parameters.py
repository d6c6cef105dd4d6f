"""A model's parameters are those that transformers has, in the order that our attention reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.architecture.config import load_model_config
from engine.architecture.rotary import pair_order
from engine.model.parameters import (
    fused_qk_norm,
    fused_qkv,
    parameter_shapes,
    router_norm,
    unread_names,
)
from tests.engine.model.decoding import Weights
from tests.engine.tiny_models import VARIANTS, save_model

NAMES = (
    *("llama_biases", "llama_tied", "mistral_sliding_window", "qwen2", "qwen3"),
    *("gemma4", "gemma4_inputs"),
)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_checkpoint(name: str, tmp_path: Path) -> None:
    oracle = save_model(VARIANTS[name], tmp_path)
    expected = {name: tuple(tensor.shape) for name, tensor in oracle.named_parameters()}
    scales = {name: (1,) for name, _ in oracle.named_buffers() if name.endswith("layer_scalar")}
    assert parameter_shapes(load_model_config(tmp_path)) == expected | scales


def test_values_may_be_keys_that_are_not_turned(tmp_path: Path) -> None:
    source = Weights(save_model(VARIANTS["gemma4"], tmp_path))
    config = load_model_config(tmp_path)
    query, key = (source.tensor(f"model.layers.1.self_attn.{name}_proj.weight") for name in "qk")
    order = pair_order(32)
    turned = [part.view(-1, 32, 64)[:, order].flatten(0, 1) for part in (query, key)]
    assert torch.equal(fused_qkv(config, source, 1, "weight"), torch.cat((*turned, key)))
    norms = fused_qk_norm(config, source, 1)
    expected = [source.tensor(f"model.layers.1.self_attn.{name}_norm.weight") for name in "qk"]
    assert torch.equal(norms[3], expected[0][order])
    assert torch.equal(norms[4:], expected[1][order].expand(2, -1))


def test_layers_that_share_keys_read_queries_only_and_others_weights_are_let_through(
    tmp_path: Path,
) -> None:
    source = Weights(save_model(VARIANTS["gemma4_inputs"], tmp_path))
    config = load_model_config(tmp_path)
    query = source.tensor("model.layers.2.self_attn.q_proj.weight")
    turned = query.view(-1, 16, 64)[:, pair_order(16)].flatten(0, 1)
    assert torch.equal(fused_qkv(config, source, 2, "weight"), turned)
    assert fused_qk_norm(config, source, 2).shape == (4, 16)
    assert "model.layers.2.self_attn.k_proj.weight" in unread_names(config)
    assert "model.layers.1.self_attn.k_proj.weight" not in unread_names(config)


def test_the_router_reads_what_transformers_does(tmp_path: Path) -> None:
    oracle = save_model(VARIANTS["gemma4_experts"], tmp_path)
    router = oracle.model.layers[1].router
    x = torch.randn(5, 64)
    weight = router_norm(load_model_config(tmp_path), Weights(oracle), 1)
    normed = torch.nn.functional.rms_norm(x, (64,), weight, router.eps)
    expected = router.norm(x) * router.scale * router.scalar_root_size
    torch.testing.assert_close(normed, expected)
