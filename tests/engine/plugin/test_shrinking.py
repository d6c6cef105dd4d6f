"""A tiny configuration has few narrow layers of all kinds, and keeps what else distinguishes it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig

from engine.plugin.shrinking import shrunk, shrunk_values

BASE: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 30,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 11008,
}


def test_sizes_shrink_and_what_is_no_size_stays() -> None:
    tiny = shrunk_values(BASE | {"rms_norm_eps": 1e-5, "attention_bias": True, "rope_theta": 5e5})
    assert tiny == {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "rms_norm_eps": 1e-5,
        "attention_bias": True,
        "rope_theta": 5e5,
    }


@pytest.mark.parametrize(("kv_heads", "expected"), [(32, 4), (8, 2), (2, 2), (1, 1)])
def test_the_relation_of_heads_stays(kv_heads: int, expected: int) -> None:
    assert (
        shrunk_values(BASE | {"num_key_value_heads": kv_heads})["num_key_value_heads"] == expected
    )


def test_each_kind_of_layer_is_kept_twice_with_what_is_its_own() -> None:
    types = ["sliding_attention"] * 5 + ["full_attention"]
    tiny = shrunk_values(
        BASE | {"layer_types": types * 5, "intermediate_size": [*range(500, 530)], "flags": types}
    )
    assert tiny["layer_types"] == ["sliding_attention", "full_attention"] * 2
    assert tiny["num_hidden_layers"] == 4
    assert tiny["intermediate_size"] == [96] * 4
    assert tiny["flags"] == types  # not one for each layer


def test_a_smaller_model_keeps_its_layers() -> None:
    tiny = shrunk_values(BASE | {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2})
    assert tiny["num_hidden_layers"] == len(tiny["layer_types"]) == 2


def test_special_tokens_stay_inside_the_vocabulary() -> None:
    tokens = {"pad_token_id": None, "bos_token_id": 128000, "eos_token_id": [128001, 128008]}
    tiny = shrunk_values(BASE | tokens | {"vocab_size": 128256})
    assert tiny["pad_token_id"] is None
    assert (tiny["bos_token_id"], tiny["eos_token_id"], tiny["vocab_size"]) == (1, [2], 199)


def test_latent_attention_keeps_what_a_head_consists_of() -> None:
    config = AutoConfig.for_model("deepseek_v3")
    tiny = shrunk(config)
    assert (config.qk_nope_head_dim, config.qk_rope_head_dim) == (128, 64)
    assert (tiny.qk_nope_head_dim, tiny.qk_rope_head_dim, tiny.qk_head_dim) == (16, 8, 24)


def test_layers_of_another_size_remain_so() -> None:
    tiny = shrunk(AutoConfig.for_model("gemma4_text"))
    own = {int(number): fields for number, fields in tiny.to_dict()["per_layer_config"].items()}
    assert tiny.to_dict()["head_dim"] == 16
    assert own == {1: {"head_dim": 32}, 3: {"head_dim": 32}}


def test_factors_of_a_rope_fit_its_smaller_head() -> None:
    rope = {"rope_type": "longrope", "long_factor": [1.0] * 64, "short_factor": [2.0] * 64}
    tiny = shrunk_values(BASE | {"rope_parameters": rope})
    assert tiny["rope_parameters"]["long_factor"] == [1.0] * 8
    assert tiny["rope_parameters"]["short_factor"] == [2.0] * 8
    assert len(rope["long_factor"]) == 64
