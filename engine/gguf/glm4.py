"""What the keys of GLM-4.5's, 4.6's and 4.7's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.names import gguf_name
from engine.gguf.settings import experts, own_layers, partial_rope

_SIGMOID = 2  # of expert_gating_func


def glm4_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers that predict further tokens are left out."""
    layers = own_layers(keys, common)
    for key, value in (
        ("expert_gating_func", _SIGMOID),
        ("expert_group_count", 1),
        ("expert_group_used_count", 1),
    ):
        if keys.integer(key, value, low=0, high=4096) != value:
            raise keys.unsupported(key, f"must be {value}")
    found = experts(keys, common, "expert_feed_forward_length")
    norm = gguf_name("model.layers.0.self_attn.q_norm.weight")
    return {
        "model_type": "glm4_moe",
        "num_hidden_layers": layers,
        "first_k_dense_replace": keys.integer("leading_dense_block_count", 0, low=0, high=layers),
        "n_routed_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
        "moe_intermediate_size": found["moe_intermediate_size"],
        "n_shared_experts": keys.integer("expert_shared_count", high=64),
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0, low=1e-6, high=1e6),
        "norm_topk_prob": keys.file.flag(keys.name("expert_weights_norm"), True),
        "n_group": 1,
        "topk_group": 1,
        "use_qk_norm": norm in keys.header.tensors,
        **partial_rope(keys, common),
    }
