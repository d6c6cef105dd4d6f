"""What config.json says of single layers, or leaves out, means what transformers takes it to
mean."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.errors import ConfigError
from engine.architecture.names import ARCHITECTURES
from engine.architecture.rope import RopeConfig

GIVEN: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 4096,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
}
LAYERS = 8


def load(directory: Path, architecture: str, **values: Any) -> ModelConfig:
    config = {"architectures": [architecture], "model_type": ARCHITECTURES[architecture]}
    (directory / "config.json").write_text(json.dumps(config | GIVEN | values))
    return load_model_config(directory)


def windows(config: Any) -> tuple[int | None, ...]:
    types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if types is None:
        return (window,) * LAYERS
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def thetas(config: Any) -> list[float | None]:
    rope, types = config.rope_parameters, getattr(config, "layer_types", None) or []
    if "rope_theta" not in rope:
        return [rope[kind]["rope_theta"] for kind in types]
    turned = getattr(config, "no_rope_layers", None) or [1] * LAYERS
    return [rope["rope_theta"] if turns else None for turns in turned]


@pytest.mark.parametrize(
    "architecture",
    [
        *("SmolLM3ForCausalLM", "Phi3ForCausalLM", "GraniteForCausalLM", "Olmo2ForCausalLM"),
        *("Olmo3ForCausalLM", "Gemma3ForCausalLM", "MinistralForCausalLM"),
        *("MixtralForCausalLM", "OlmoeForCausalLM", "Qwen3MoeForCausalLM"),
    ],
)
def test_what_is_left_out_means_the_same(architecture: str, tmp_path: Path) -> None:
    ours = load(tmp_path, architecture)
    theirs = AutoConfig.from_pretrained(tmp_path)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.windows == windows(theirs)
    assert [rope and rope.theta for rope in ours.ropes] == thetas(theirs)
    if ours.experts is not None:
        assert ours.experts.count == theirs.num_experts
        assert ours.experts.top_k == theirs.num_experts_per_tok
        assert ours.experts.renormalised == getattr(theirs, "norm_topk_prob", True)
        assert ours.experts.inner == getattr(theirs, "moe_intermediate_size", 96)


def test_qwen_s_layers_have_experts_unless_skipped(tmp_path: Path) -> None:
    ours = load(tmp_path, "Qwen3MoeForCausalLM", decoder_sparse_step=2, mlp_only_layers=[3])
    layers = [layer for layer in range(LAYERS) if ours.has_experts(layer)]
    assert layers == [1, 5, 7]


def test_gemma_s_older_fields_mean_the_same(tmp_path: Path) -> None:
    older = {
        "sliding_window_pattern": 3,
        "rope_theta": 5e5,
        "rope_local_base_freq": 2e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "cache_implementation": "hybrid",
    }
    ours = load(tmp_path, "Gemma3ForCausalLM", **older)
    theirs = AutoConfig.from_pretrained(tmp_path)
    assert ours.windows == windows(theirs)
    assert [rope and rope.theta for rope in ours.ropes] == thetas(theirs)
    assert ours.ropes[2] == RopeConfig(theta=5e5, kind="linear", factor=8.0)
    assert ours.ropes[0] == RopeConfig(theta=2e4)
    assert theirs.rope_parameters["full_attention"]["factor"] == 8.0
    assert theirs.rope_parameters["sliding_attention"]["rope_type"] == "default"


def test_olmo_3_scales_only_layers_with_full_attention(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    ours = load(tmp_path, "Olmo3ForCausalLM", rope_scaling=yarn, rope_theta=500_000)
    assert [rope.kind for rope in ours.ropes if rope] == [*["default"] * 3, "yarn"] * 2


@pytest.mark.parametrize(
    ("architecture", "values", "expected"),
    [
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 2] * 4}, "no_rope_layers must be 8 zeros"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1] * 7}, "no_rope_layers must be 8 zeros"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [[1]] * 8}, "no_rope_layers must be 8 zeros"),
        ("Gemma3ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types must be 8 strings"),
        (
            "Gemma3ForCausalLM",
            {"rope_parameters": {"rope_type": "linear"}},
            "for each type of layers",
        ),
        ("Olmo3ForCausalLM", {"rope_theta": 1e4}, "rope_theta 10000 is not supported"),
        ("GraniteForCausalLM", {"residual_multiplier": "large"}, "residual_multiplier must be"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.01}, "is not a whole number of pairs"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "short_factor must be a list of 64 positive numbers",
        ),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "linear"}}, "rope type 'linear'"),
        ("Ministral3ForCausalLM", {}, "has no rope_parameters"),
        ("MixtralForCausalLM", {"num_experts_per_tok": 9}, "an integer from 1 to 8"),
        ("Qwen3MoeForCausalLM", {"use_sliding_window": True}, "this family: use_sliding_window"),
        ("SmolLM3ForCausalLM", {"layer_types": ["sliding_attention"] * 8}, "a sliding window"),
        ("Qwen3MoeForCausalLM", {"mlp_only_layers": ["1"]}, "a list of layers"),
        ("OlmoeForCausalLM", {"clip_qkv": 8.0}, "this family: clip_qkv"),
        (
            "OlmoeForCausalLM",
            {"num_experts": 4096, "num_hidden_layers": 64},
            "4096 experts in each of 64 layers are not supported; at most 131072 in all are",
        ),
        (
            "MixtralForCausalLM",
            {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "linear"}},
            "both rope_parameters and rope_scaling",
        ),
        (
            "Phi3ForCausalLM",
            {"rope_parameters": {"rope_theta": 1e5}, "rope_scaling": {"rope_theta": 1e6}},
            "both rope_parameters and rope_scaling",
        ),
        (
            "Ministral3ForCausalLM",
            {"rope_parameters": {"rope_type": "default"}},
            "llama_4_scaling_beta must be",
        ),
    ],
)
def test_what_cannot_be_meant_is_named(
    architecture: str, values: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(tmp_path, architecture, **values)


def test_a_long_list_of_dense_layers_is_read_quickly(tmp_path: Path) -> None:
    began = time.process_time()
    dense = [4096] * 200_000
    ours = load(
        tmp_path,
        "Qwen3MoeForCausalLM",
        mlp_only_layers=dense,
        num_hidden_layers=1000,
        num_experts=8,
    )
    assert ours.experts is not None
    assert all(ours.experts.layers)
    assert time.process_time() - began < 3
