"""What the keys of GGUF files of Command R, Command R7B and Command A mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.names import gguf_name
from engine.gguf.settings import plain_rope, window_fields

NORM_KEY = "attention.layer_norm_epsilon"


def cohere(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    norm = gguf_name("model.layers.0.self_attn.q_norm.weight")
    return {
        "model_type": "cohere",
        "layer_norm_eps": common["rms_norm_eps"],
        "logit_scale": keys.number("logit_scale", low=1e-6, high=1e6),
        "use_qk_norm": norm in keys.header.tensors,
        **plain_rope(keys, common),
    }


def cohere2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Three of four layers have a sliding window; only those have rotary embeddings."""
    return {
        "model_type": "cohere2",
        "layer_norm_eps": common["rms_norm_eps"],
        "logit_scale": keys.number("logit_scale", low=1e-6, high=1e6),
        **window_fields(keys, common["num_hidden_layers"], 4),
        **plain_rope(keys, common),
    }
