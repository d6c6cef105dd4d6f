"""What the keys of GLM's files mean. tests/engine/plugin/test_gguf.py compares whole models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.families import FAMILIES, keys_of
from tests.engine.gguf.configurations import assert_same_configuration, file_config
from tests.engine.gguf.making import write_header
from tests.engine.plugin.families import save_family

COMMON = {
    "num_hidden_layers": 47,
    "head_dim": 128,
    "rope_theta": 1e6,
    "rope_scaling": None,
}
KEYS: dict[str, Any] = {
    "expert_count": 128,
    "expert_used_count": 8,
    "expert_feed_forward_length": 1408,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "leading_dense_block_count": 1,
    "nextn_predict_layers": 1,
    "rope.dimension_count": 64,
}


def fields(folder: Path, keys: dict[str, Any], tensors: dict[str, Any] | None = None) -> Any:
    header = write_header(folder, "glm4moe", keys, tensors)
    return FAMILIES["glm4moe"].settings(keys_of(header), COMMON)


def test_the_keys_of_glm_4_5_air_mean_its_config_json(tmp_path: Path) -> None:
    norm = {"blk.0.attn_q_norm.weight": np.ones(128, np.float32)}
    found = fields(tmp_path, KEYS, norm)
    assert found["num_hidden_layers"] == 46
    assert found["first_k_dense_replace"] == 1
    assert found["n_routed_experts"] == 128
    assert found["use_qk_norm"] is True
    assert found["norm_topk_prob"] is True
    assert found["rope_parameters"]["partial_rotary_factor"] == 0.5
    assert fields(tmp_path, KEYS)["use_qk_norm"] is False


def test_absent_keys_mean_what_they_mean_to_llama_cpp(tmp_path: Path) -> None:
    found = fields(tmp_path, {k: v for k, v in KEYS.items() if k != "expert_weights_norm"})
    assert found["norm_topk_prob"] is False
    assert found["routed_scaling_factor"] == 1.0
    assert (found["n_group"], found["topk_group"]) == (1, 1)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("expert_gating_func", 1, "expert_gating_func is [0-9]+; only 2 is"),
        ("expert_group_count", 3, "must divide 128 experts"),
        ("nextn_predict_layers", 47, "must be an integer from 0 to 46"),
        ("leading_dense_block_count", 47, "must be an integer from 0 to 46"),
        ("expert_shared_count", 0, "must be an integer from 1 to 64"),
        ("expert_weights_scale", -1.0, "must be a number from"),
        ("expert_weights_norm", 1, "must be true or false"),
        ("rope.dimension_count", 63, "must be an even number"),
        ("expert_count", 4000, "must be an integer from 1 to"),
    ],
)
def test_errors_name_the_unsupported_key(key: str, value: float, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        fields(tmp_path, KEYS | {key: value})
    assert f"glm4moe.{key}" in str(raised.value)


def test_a_dense_model_has_the_configuration_of_the_original(tmp_path: Path) -> None:
    save_family("glm4", tmp_path / "o")
    found = file_config(tmp_path / "o", tmp_path)
    assert_same_configuration(tmp_path / "o", found)
    assert found["rope_parameters"]["partial_rotary_factor"] == 0.5
    sections = np.array([8, 12, 12, 0])  # of models that read images, whose rows are reordered
    with pytest.raises(ConfigError, match=r"glm4\.rope\.dimension_sections is not supported"):
        file_config(tmp_path / "o", tmp_path, rope__dimension_sections=sections)
