"""What the keys of GGUF files of Qwen3-Next, Qwen3.5 and Qwen3.6 mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_HEADS, MAX_KERNEL, MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import FULL, experts, layers_without_mtp, partial_rope, shared_size

_LINEAR = "linear_attention"


def qwen35(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """One layer in ``full_attention_interval`` has full attention."""
    layers = layers_without_mtp(keys, common)
    interval = keys.integer("full_attention_interval", 4, high=MAX_SIZE)
    return {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": layers,
        "layer_types": [_LINEAR if (layer + 1) % interval else FULL for layer in range(layers)],
        "attn_output_gate": True,
        **_linear_attention(keys),
        **partial_rope(keys, common),
    }


def qwen35_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = qwen35(keys, common)
    mixture = experts(keys, found, "expert_feed_forward_length")
    return {
        **found,
        **mixture,
        "model_type": "qwen3_5_moe_text",
        "shared_expert_intermediate_size": shared_size(keys, mixture["moe_intermediate_size"]),
    }


def qwen3_next(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {**qwen35_moe(keys, common), "model_type": "qwen3_next", "norm_topk_prob": True}


def _linear_attention(keys: ArchitectureKeys) -> dict[str, Any]:
    key_heads = keys.integer("ssm.group_count", high=MAX_HEADS)
    value_heads = keys.integer("ssm.time_step_rank", high=MAX_HEADS)
    inner = keys.integer("ssm.inner_size", high=MAX_SIZE)
    keys.require_multiple("ssm.time_step_rank", value_heads, key_heads)
    keys.require_multiple("ssm.inner_size", inner, value_heads)
    return {
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
        "linear_key_head_dim": keys.integer("ssm.state_size", high=MAX_HEADS),
        "linear_value_head_dim": inner // value_heads,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
    }
