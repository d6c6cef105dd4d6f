"""What the keys of GGUF files of DeepSeek V3, and of GLM-4.7 Flash, which is built like it, mean in
config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import (
    mixture_with_shared,
    own_layers,
    rope_parameters,
    sigmoid_router,
)

_MOST_HEAD = 1024
_BIAS = "exp_probs_b.bias"


def deepseek2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers that predict further tokens are left out."""
    layers = own_layers(keys, common)
    if not any(name.endswith(_BIAS) for name in keys.header.tensors):
        raise keys.unsupported("expert_gating_func", "must be 2 (sigmoid), with exp_probs_b.bias")
    sigmoid_router(keys)
    rank = keys.integer("attention.kv_lora_rank", high=MAX_SIZE)
    turning = common["head_dim"]
    # Newer files have these names; in older ones attention.key_length is the size of a head.
    is_new = keys.has("attention.key_length_mla")
    ending = "_mla" if is_new else ""
    key = f"attention.key_length{ending}"
    return {
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "kv_lora_rank": rank,
        "q_lora_rank": keys.integer("attention.q_lora_rank", high=MAX_SIZE)
        if keys.has("attention.q_lora_rank")
        else None,
        "qk_rope_head_dim": turning,
        "qk_nope_head_dim": keys.integer(key, low=turning + 1, high=_MOST_HEAD) - turning,
        "v_head_dim": keys.integer(f"attention.value_length{ending}", high=_MOST_HEAD),
        "rope_interleave": True,
        **mixture_with_shared(keys, common, layers),
        **rope_parameters(_yarn(keys, common["rope_scaling"]), common["rope_theta"]),
    }


def _yarn(keys: ArchitectureKeys, scaling: dict[str, Any] | None) -> dict[str, Any] | None:
    if scaling is None or scaling["rope_type"] != "yarn":
        return scaling
    # Files have a tenth of it. Only where both are equal does YaRN leave sines as they are.
    scale = 10 * keys.number("rope.scaling.yarn_log_multiplier", low=0.0, high=1e3)
    return {**scaling, "mscale": scale, "mscale_all_dim": scale}
