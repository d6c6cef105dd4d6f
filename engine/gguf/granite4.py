"""What the keys of GGUF files of Granite's mixtures and of Granite 4 mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import experts, granite_multipliers, plain_rope, shared_size

_MOST_HEADS = 4096
_MOST_KERNEL = 64


def granite_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "granitemoe",
        **_mixture(keys, common),
        **granite_multipliers(keys, common),
        **plain_rope(keys, common),
    }


def granite_moe_shared(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        **granite_moe(keys, common),
        "model_type": "granitemoeshared",
        "shared_intermediate_size": shared_size(keys, common["intermediate_size"]),
    }


def granite_hybrid(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers without heads of keys and values are Mamba 2's."""
    layers, hidden = common["num_hidden_layers"], common["hidden_size"]
    heads = keys.per_layer("attention.head_count_kv", layers, low=0, high=MAX_SIZE)
    turns = keys.file.flag(keys.name("rope.scaling.finetuned"), True)
    inner = keys.integer("ssm.inner_size", high=MAX_SIZE)
    mamba_heads = keys.integer("ssm.time_step_rank", high=_MOST_HEADS)
    groups = keys.integer("ssm.group_count", high=_MOST_HEADS)
    for key, value, divisor in (
        ("ssm.inner_size", inner, hidden),
        ("ssm.inner_size", inner, mamba_heads),
        ("ssm.time_step_rank", mamba_heads, groups),
    ):
        if value % divisor:
            raise keys.file.error(keys.name(key), f"a multiple of {divisor}", value)
    mixture = {"num_local_experts": 0, "num_experts_per_tok": 0}
    return {
        "model_type": "granitemoehybrid",
        "layer_types": ["attention" if count else "mamba" for count in heads],
        "position_embedding_type": "rope" if turns else "nope",
        "mamba_n_heads": mamba_heads,
        "mamba_n_groups": groups,
        "mamba_d_state": keys.integer("ssm.state_size", high=_MOST_HEADS),
        "mamba_d_head": inner // mamba_heads,
        "mamba_d_conv": keys.integer("ssm.conv_kernel", low=2, high=_MOST_KERNEL),
        "mamba_expand": inner // hidden,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "shared_intermediate_size": shared_size(keys, common["intermediate_size"]),
        **(_mixture(keys, common) if keys.is_set("expert_count") else mixture),
        **granite_multipliers(keys, common),
        **plain_rope(keys, common),
    }


def _mixture(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = experts(keys, common, "feed_forward_length")
    return {
        "num_local_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
    }
