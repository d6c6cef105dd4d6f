"""What the keys of GGUF files of Command R, Command R7B and Command A mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import has_parameter, plain_rope, window_fields


def cohere(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "cohere",
        "use_qk_norm": has_parameter(keys, "model.layers.0.self_attn.q_norm.weight"),
        **_of_both(keys, common),
    }


def cohere2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Three of four layers have a sliding window; only those have rotary embeddings."""
    return {
        "model_type": "cohere2",
        **window_fields(keys, common["num_hidden_layers"], 4),
        **_of_both(keys, common),
    }


def _of_both(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "layer_norm_eps": common["rms_norm_eps"],
        "logit_scale": keys.number("logit_scale", low=1e-6, high=1e6),
        **plain_rope(keys, common),
    }
