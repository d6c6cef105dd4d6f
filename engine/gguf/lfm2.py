"""What the keys of LFM2's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_KERNEL, MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import FULL, experts, must_be, plain_rope, sigmoid_router


def lfm2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers with 0 key-value heads are short convolutions."""
    must_be(keys, "attention.sliding_window", 0)
    layers = common["num_hidden_layers"]
    heads = keys.per_layer("attention.head_count_kv", layers, low=0, high=MAX_SIZE)
    return {
        "model_type": "lfm2",
        "layer_types": [FULL if count else "conv" for count in heads],
        "conv_L_cache": keys.integer("shortconv.l_cache", low=2, high=MAX_KERNEL),
        "conv_bias": False,
        "norm_eps": common["rms_norm_eps"],
        "block_auto_adjust_ff_dim": False,
        **plain_rope(keys, common),
    }


def lfm2_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    sigmoid_router(keys)
    layers = common["num_hidden_layers"]
    return {
        **lfm2(keys, common),
        **experts(keys, common, "expert_feed_forward_length"),
        "model_type": "lfm2_moe",
        "num_dense_layers": keys.integer("leading_dense_block_count", 0, low=0, high=layers),
        "use_expert_bias": True,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    }
