"""What the keys of Kimi-Linear's files mean in config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KIND = "kimi_linear#files"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_kinds(tmp_path_factory, [KIND])[KIND]


def test_the_configuration_is_the_originals(original: Path, tmp_path: Path) -> None:
    """Checkpoints have other names for some fields."""
    found = AutoConfig.for_model(**file_config(original, tmp_path)).to_dict()
    assert_same_configuration(original, json.loads(json.dumps(found)), "qk_head_dim")
    assert found["layer_types"][:2] == ["linear_attention", "full_attention"]
    assert found["mlp_layer_types"][:2] == ["dense", "sparse"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__head_count_kv": 0}, "head_count_kv must be above 0 in some layer"),
        ({"kda__head_dim": None}, "has no kimi-linear.kda.head_dim"),
        ({"ssm__conv_kernel": 1}, "ssm.conv_kernel must be an integer from 2"),
        ({"expert_gating_func": 1}, "expert_gating_func is [0-9]+; only 2 is"),
        ({"expert_weights_norm": False}, "expert_weights_norm false is not supported"),
        ({"nextn_predict_layers": 1}, "nextn_predict_layers is [0-9]+; only 0 is"),
        ({"expert_group_count": 3}, "3 must divide 8 experts into groups of two or more"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"attention__key_length_mla": 8}, "key_length_mla must be an integer from 9"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(original, tmp_path, **keys)
