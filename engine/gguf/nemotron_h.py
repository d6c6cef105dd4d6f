"""What the keys of Nemotron-H's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.mamba2 import mamba2_fields
from engine.gguf.settings import (
    expert_weights,
    experts,
    layers_without_mtp,
    must_be,
    plain_rope,
    shared_size,
    sigmoid_router,
)


def nemotron_h(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """A layer is one thing: it attends if it has key-value heads, is feed-forward if that has a
    size, and else a Mamba-2 layer."""
    return _fields(keys, common, "mlp")


def nemotron_h_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """The feed-forward layers are mixtures of experts."""
    sigmoid_router(keys)
    must_be(keys, "expert_shared_count", 1)
    found = experts(keys, common, "expert_feed_forward_length")
    inner = found["moe_intermediate_size"]
    latent = keys.integer("moe_latent_size", 0, low=0, high=MAX_SIZE)
    return {
        **_fields(keys, common, "moe"),
        "n_routed_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
        "moe_intermediate_size": inner,
        "moe_shared_expert_intermediate_size": shared_size(keys, inner),
        "moe_latent_size": latent or None,
        **expert_weights(keys),
        "n_group": 1,
        "topk_group": 1,
    }


def _fields(keys: ArchitectureKeys, common: dict[str, Any], feed_forward: str) -> dict[str, Any]:
    count, layers = common["num_hidden_layers"], layers_without_mtp(keys, common)
    heads = keys.per_layer("attention.head_count_kv", count, low=0, high=MAX_SIZE)
    sizes = keys.per_layer("feed_forward_length", count, low=0, high=MAX_SIZE)
    if keys.is_set("attention.scale"):
        raise keys.unsupported("attention.scale", "is not supported")
    mamba = mamba2_fields(keys)
    return {
        "model_type": "nemotron_h",
        "num_hidden_layers": layers,
        "layers_block_type": [
            "full_attention" if attends else feed_forward if size else "linear_attention"
            for attends, size in zip(heads[:layers], sizes[:layers], strict=True)
        ],
        "mamba_num_heads": mamba["mamba_n_heads"],
        "mamba_head_dim": mamba["mamba_d_head"],
        "n_groups": mamba["mamba_n_groups"],
        "ssm_state_size": mamba["mamba_d_state"],
        "conv_kernel": mamba["mamba_d_conv"],
        "layer_norm_epsilon": common["rms_norm_eps"],
        "mlp_hidden_act": "relu2",
        **plain_rope(keys, common),
    }
