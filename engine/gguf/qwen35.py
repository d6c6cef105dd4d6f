"""What the keys of GGUF files of Qwen3-Next, Qwen3.5 and Qwen3.6 mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import FULL, experts, own_layers, partial_rope, shared_size

_LINEAR = "linear_attention"
_MOST_HEADS = 4096
_MOST_KERNEL = 64


def qwen35(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Every few layers attend to all tokens. Those that predict further tokens are left out."""
    layers = own_layers(keys, common)
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
    key_heads = keys.integer("ssm.group_count", high=_MOST_HEADS)
    value_heads = keys.integer("ssm.time_step_rank", high=_MOST_HEADS)
    inner = keys.integer("ssm.inner_size", high=MAX_SIZE)
    for key, value, divisor in (
        ("ssm.time_step_rank", value_heads, key_heads),
        ("ssm.inner_size", inner, value_heads),
    ):
        if value % divisor:
            raise keys.file.error(keys.name(key), f"a multiple of {divisor}", value)
    return {
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel", low=2, high=_MOST_KERNEL),
        "linear_key_head_dim": keys.integer("ssm.state_size", high=_MOST_HEADS),
        "linear_value_head_dim": inner // value_heads,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
    }
