from __future__ import annotations

from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch

from engine.gguf.blocks import DECODERS
from engine.gguf.weights import grouped_weight
from engine.plugin.gguf_values import Changes

QWEN = Changes(
    SimpleNamespace(
        model_type="qwen3_5_text",
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        linear_value_head_dim=128,
    )
)
LINEAR = "model.layers.0.linear_attn"
# The first head of each key head, then the second of each.
STORED = torch.tensor([0.0, 3.0, 1.0, 4.0, 2.0, 5.0])


def test_value_heads_of_a_key_head_follow_each_other() -> None:
    assert QWEN.undone(f"{LINEAR}.dt_bias", STORED, (6,)).tolist() == [0, 1, 2, 3, 4, 5]
    rows = STORED.repeat_interleave(128).unsqueeze(1)
    found = QWEN.undone(f"{LINEAR}.in_proj_z.weight", rows, (768, 1))
    assert torch.equal(found, torch.arange(6.0).repeat_interleave(128).unsqueeze(1))
    found = QWEN.undone(f"{LINEAR}.out_proj.weight", rows.t(), (1, 768))
    assert torch.equal(found, torch.arange(6.0).repeat_interleave(128).unsqueeze(0))


def test_queries_and_keys_stay_where_they_are() -> None:
    first = torch.arange(-64.0, 0.0)
    stored = torch.cat([first, STORED.repeat_interleave(128)]).unsqueeze(1)
    found = QWEN.undone(f"{LINEAR}.conv1d.weight", stored, (832, 1, 1))
    expected = torch.cat([first, torch.arange(6.0).repeat_interleave(128)])
    assert torch.equal(found.view(-1), expected)


def test_values_are_those_of_the_checkpoint() -> None:
    ones = torch.ones(6)
    assert QWEN.undone("model.norm.weight", ones, (6,)).tolist() == [0] * 6
    assert QWEN.undone("model.layers.0.input_layernorm.weight", ones, (6,)).tolist() == [0] * 6
    assert QWEN.undone(f"{LINEAR}.norm.weight", ones, (6,)).tolist() == [1] * 6
    assert torch.allclose(
        QWEN.undone(f"{LINEAR}.A_log", -STORED.exp(), (6,)), torch.arange(6.0), atol=1e-6
    )


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q3_K"])
@pytest.mark.parametrize("name", ["out_proj", "in_proj_z", "in_proj_qkv", "in_proj_b", "x_proj"])
def test_matrices_in_few_bits_are_the_same_matrices(kind: str, name: str) -> None:
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    rows = 6 if name == "in_proj_b" else 768
    blocks = np.random.default_rng(0).integers(0, 255, (rows * 3, size), np.uint8)
    blocks = blocks & 0x7B  # scales are float16: neither infinite nor NaN
    columns = 768 if kind.endswith("K") else 96
    if name == "out_proj" and columns == 96:
        blocks = np.tile(blocks, (8, 1))
        columns = 768
    weight = grouped_weight(DECODERS[kind](blocks), columns)
    full = f"{LINEAR}.{name}.weight"
    found = QWEN.undone_in_few_bits(full, weight)
    assert found is not None
    expected = QWEN.undone(full, weight.dequantised(), weight.shape)
    assert torch.equal(found.dequantised(), expected)
    assert torch.equal(expected, weight.dequantised()) == (name == "x_proj")


def test_heads_that_no_groups_fit_are_not_kept_in_few_bits() -> None:
    config = SimpleNamespace(
        model_type="qwen3_5_text",
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_value_head_dim=24,
    )
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0][1]
    weight = grouped_weight(DECODERS["Q8_0"](np.zeros((3, size), np.uint8)), 96)
    assert Changes(config).undone_in_few_bits(f"{LINEAR}.out_proj.weight", weight) is None


def test_other_models_are_stored_as_they_are() -> None:
    changes = Changes(SimpleNamespace(model_type="gpt_oss"))
    assert torch.equal(changes.undone("model.norm.weight", STORED, (6,)), STORED)
    assert changes.stored_shape("model.layers.0.self_attn.sinks", (6,)) == (6,)


def test_a_convolution_has_no_dimension_of_one_element() -> None:
    assert QWEN.stored_shape(f"{LINEAR}.conv1d.weight", (128, 1, 4)) == (128, 4)


def test_mamba_has_a_row_for_each_group_and_a_column_of_heads() -> None:
    changes = Changes(SimpleNamespace(model_type="granitemoehybrid", mamba_n_groups=2))
    prefix = "model.layers.0.mamba"
    assert changes.stored_shape(f"{prefix}.norm.weight", (128,)) == (2, 64)
    assert changes.stored_shape(f"{prefix}.D", (8,)) == (8, 1)
    found = changes.undone(f"{prefix}.A_log", -STORED.exp().unsqueeze(1), (6,))
    assert torch.allclose(found, STORED, atol=1e-6)
