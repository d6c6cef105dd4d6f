"""What the keys of Qwen3.5's and Qwen3.6's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MOST, FileKeys
from engine.gguf.settings import FULL, MOST_EXPERTS

_LINEAR = "linear_attention"
_MOST_HEADS = 4096
_MOST_KERNEL = 64


def qwen35(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Every few layers attend to all tokens. Those that predict further tokens are left out."""
    layers = common["num_hidden_layers"]
    layers -= keys.integer("nextn_predict_layers", 0, low=0, high=layers - 1)
    interval = keys.integer("full_attention_interval", 4, high=MOST)
    return {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": layers,
        "layer_types": [_LINEAR if (layer + 1) % interval else FULL for layer in range(layers)],
        "attn_output_gate": True,
        **_linear_attention(keys),
        **_rope(keys, common),
    }


def qwen35_moe(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = qwen35(keys, common)
    most = max(1, MOST_EXPERTS // found["num_hidden_layers"])
    experts = keys.integer("expert_count", high=most)
    inner = keys.integer("expert_feed_forward_length", high=MOST)
    return {
        **found,
        "model_type": "qwen3_5_moe_text",
        "num_experts": experts,
        "num_experts_per_tok": keys.integer("expert_used_count", high=experts),
        "moe_intermediate_size": inner,
        "shared_expert_intermediate_size": keys.integer(
            "expert_shared_feed_forward_length", inner, high=MOST
        ),
    }


def _linear_attention(keys: FileKeys) -> dict[str, Any]:
    key_heads = keys.integer("ssm.group_count", high=_MOST_HEADS)
    value_heads = keys.integer("ssm.time_step_rank", high=_MOST_HEADS)
    inner = keys.integer("ssm.inner_size", high=MOST)
    for key, value, divisor in (
        ("ssm.time_step_rank", value_heads, key_heads),
        ("ssm.inner_size", inner, value_heads),
    ):
        if value % divisor:
            raise keys.all.error(keys.name(key), f"a multiple of {divisor}", value)
    return {
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel", low=2, high=_MOST_KERNEL),
        "linear_key_head_dim": keys.integer("ssm.state_size", high=_MOST_HEADS),
        "linear_value_head_dim": inner // value_heads,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
    }


def _rope(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    head_dim = common["head_dim"]
    turning = keys.integer("rope.dimension_count", head_dim, low=2, high=head_dim)
    if turning % 2:
        raise keys.all.error(keys.name("rope.dimension_count"), "an even number", turning)
    return {
        "rope_scaling": None,
        "rope_parameters": {
            **(common["rope_scaling"] or {"rope_type": "default"}),
            "rope_theta": common["rope_theta"],
            "partial_rotary_factor": turning / head_dim,
        },
    }
