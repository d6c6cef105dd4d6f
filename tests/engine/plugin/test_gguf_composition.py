"""Each parameter is put together from what a file has. ``test_gguf.py`` compares whole models."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from engine.gguf.blocks import DECODERS
from engine.gguf.weights import grouped_weight
from engine.plugin.gguf_composition import FromKey, Splits, composition_of
from engine.plugin.gguf_values import Changes
from engine.weights.grouped import GroupedWeight
from tests.engine.gguf.deepseek_files import JOINT_KV_B
from tests.engine.gguf.directories import file_directory
from tests.engine.gguf.qwen35_files import JOINT_QKVZ, change_config
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_gguf import assert_equals, parameters

NEXT = SimpleNamespace(
    model_type="qwen3_next",
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
)
GRANITE = SimpleNamespace(model_type="granitemoeshared")
MATRICES: dict[str, tuple[SimpleNamespace, tuple[int, int]]] = {
    "model.layers.0.linear_attn.in_proj_qkvz.weight": (NEXT, (384, 64)),
    "model.layers.0.shared_mlp.input_linear.weight": (GRANITE, (128, 64)),
}


def parts(name: str, config: Any, shape: tuple[int, ...]) -> Any:
    model = SimpleNamespace(config=config)
    return composition_of(name, shape, model, Changes(config), Splits(True, True))


def random_weight(shape: tuple[int, ...]) -> GroupedWeight:
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0][1]
    count = shape[0] * shape[1] // 32
    blocks = np.random.default_rng(0).integers(0, 255, (count, size), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    return grouped_weight(DECODERS["Q8_0"](blocks), shape[1])


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_in_few_bits_are_the_same_matrices(name: str) -> None:
    config, shape = MATRICES[name]
    found = parts(name, config, shape)
    weights = [random_weight(part.shape) for part in found.stored]
    whole: Tensor = found.whole([weight.dequantised() for weight in weights])
    few = found.in_few_bits(weights)
    assert whole.shape == shape
    assert few is not None
    assert torch.equal(few.dequantised(), whole)


def test_what_makes_keys_and_values_is_read_in_floats() -> None:
    config = SimpleNamespace(
        model_type="deepseek_v3", num_attention_heads=2, qk_nope_head_dim=3, v_head_dim=5
    )
    found = parts("model.layers.0.self_attn.kv_b_proj.weight", config, (16, 4))
    whole = torch.arange(64.0).view(2, 8, 4)
    keys, values = whole[:, :3].transpose(1, 2), whole[:, 3:]
    assert [part.shape for part in found.stored] == [keys.shape, values.shape]
    assert torch.equal(found.whole([keys, values]), whole.view(16, 4))
    assert found.in_few_bits([]) is None


@pytest.mark.parametrize("kind", ["deepseek_v2#files", "deepseek_v3#files", "kimi_linear#files"])
def test_older_files_have_keys_and_values_in_one_tensor(kind: str, tmp_path: Path) -> None:
    oracle = save_family(kind, tmp_path / "o")
    change_config(tmp_path / "o", **{JOINT_KV_B: True})
    assert_equals(parameters(file_directory(tmp_path / "o", tmp_path, "F32")), oracle, 1e-6)


def test_sizes_cost_nothing_before_the_tensors_are_known_to_exist() -> None:
    sizes = {**vars(NEXT), "linear_key_head_dim": 1 << 50}
    found = parts(
        "model.layers.0.linear_attn.in_proj_qkvz.weight", SimpleNamespace(**sizes), (1, 1)
    )
    assert found.stored[0].shape[0] > 1 << 50


def test_older_files_of_qwen3_next_have_one_tensor(tmp_path: Path) -> None:
    oracle = save_family("qwen3_next", tmp_path / "o")
    change_config(tmp_path / "o", **{JOINT_QKVZ: True})
    assert_equals(parameters(file_directory(tmp_path / "o", tmp_path, "F32")), oracle, 1e-6)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_number_of_a_key_needs_no_tensor(shape: tuple[int, ...]) -> None:
    found = FromKey(0.75, shape)
    assert found.stored == []
    assert torch.equal(found.whole([]), torch.full(shape, 0.75))
    assert found.in_few_bits([]) is None
