"""What the keys of Granite's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.mamba2 import mamba2_fields
from engine.gguf.settings import local_experts, plain_rope, shared_size


def granite(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    _require_rope(keys)
    return _multipliers(keys, common)


def granite_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    _require_rope(keys)
    return {
        "model_type": "granitemoe",
        **local_experts(keys, common),
        **_multipliers(keys, common),
        **plain_rope(keys, common),
    }


def granite_moe_shared(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        **granite_moe(keys, common),
        "model_type": "granitemoeshared",
        "shared_intermediate_size": shared_size(keys, common["intermediate_size"]),
    }


def granite_hybrid(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers with 0 key-value heads are Mamba-2 layers."""
    layers = common["num_hidden_layers"]
    heads = keys.per_layer("attention.head_count_kv", layers, low=0, high=MAX_SIZE)
    none = {"num_local_experts": 0, "num_experts_per_tok": 0}
    return {
        "model_type": "granitemoehybrid",
        "layer_types": ["attention" if count else "mamba" for count in heads],
        "position_embedding_type": "rope" if _has_rope(keys) else "nope",
        "shared_intermediate_size": shared_size(keys, common["intermediate_size"]),
        **(local_experts(keys, common) if keys.is_set("expert_count") else none),
        **_mamba(keys, common["hidden_size"]),
        **_multipliers(keys, common),
        **plain_rope(keys, common),
    }


def _mamba(keys: ArchitectureKeys, hidden: int) -> dict[str, Any]:
    found = mamba2_fields(keys)
    inner = found["mamba_n_heads"] * found["mamba_d_head"]
    keys.require_multiple("ssm.inner_size", inner, hidden)
    return {**found, "mamba_expand": inner // hidden}


def _has_rope(keys: ArchitectureKeys) -> bool:
    return keys.file.flag(keys.name("rope.scaling.finetuned"), True)


def _require_rope(keys: ArchitectureKeys) -> None:
    if not _has_rope(keys):
        raise keys.unsupported(
            "rope.scaling.finetuned", "false (no rotary embeddings) is not supported"
        )


def _multipliers(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    usual = common["head_dim"] ** -0.5
    return {
        "attention_multiplier": keys.number("attention.scale", usual, low=1e-6, high=1e6),
        "embedding_multiplier": keys.number("embedding_scale", 1.0, low=1e-6, high=1e6),
        "residual_multiplier": keys.number("residual_scale", 1.0, low=1e-6, high=1e6),
        "logits_scaling": keys.number("logit_scale", 1.0, low=1e-6, high=1e6),
    }
