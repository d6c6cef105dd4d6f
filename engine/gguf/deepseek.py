"""What the keys of GGUF files of DeepSeek V2 and V3, and of GLM-4.7 Flash, which is built like V3,
mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_HEAD_DIM, MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import (
    SIGMOID,
    SOFTMAX,
    layers_without_mtp,
    mixture_with_shared,
    refuse_scaling,
    rope_parameters,
)

_FLASH_VOCABULARY = 154_880


def deepseek2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    layers = layers_without_mtp(keys, common)
    mixture = mixture_with_shared(keys, common, layers)
    # 0: not stated.
    router = keys.integer("expert_gating_func", 0, low=0, high=4096) or _usual_router(common)
    if keys.is_set("attention.temperature_scale"):
        raise keys.unsupported("attention.temperature_scale", "is not supported")
    return {
        **_kind(keys, router, mixture),
        "num_hidden_layers": layers,
        **latent_attention(keys, common),
        "rope_interleave": True,
        **mixture,
        **rope_parameters(_yarn(keys, common), common["rope_theta"]),
    }


def latent_attention(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    turning = common["head_dim"]
    if turning % 2:
        raise keys.file.error(keys.name("rope.dimension_count"), "an even number", turning)
    # Older files have no _mla keys: there, key_length and value_length are the sizes of a head.
    ending = "_mla" if keys.has("attention.key_length_mla") else ""
    of_key, of_value = f"attention.key_length{ending}", f"attention.value_length{ending}"
    return {
        "kv_lora_rank": keys.integer("attention.kv_lora_rank", high=MAX_SIZE),
        "q_lora_rank": keys.integer("attention.q_lora_rank", high=MAX_SIZE)
        if keys.has("attention.q_lora_rank")
        else None,
        "qk_rope_head_dim": turning,
        "qk_nope_head_dim": keys.integer(of_key, low=turning + 1, high=MAX_HEAD_DIM) - turning,
        "v_head_dim": keys.integer(of_value, high=MAX_HEAD_DIM),
    }


def _usual_router(common: dict[str, Any]) -> int:
    """Return the router of files that do not name it: the first ones of DeepSeek V2 and of GLM-4.7
    Flash."""
    is_flash = common["num_hidden_layers"] in (47, 48) and common["vocab_size"] == _FLASH_VOCABULARY
    return SIGMOID if is_flash else SOFTMAX


def _kind(keys: ArchitectureKeys, router: int, mixture: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between V2, which scores experts by the softmax, and V3."""
    if router == SIGMOID:
        return {"model_type": "deepseek_v3"}
    if router != SOFTMAX:
        raise keys.unsupported(
            "expert_gating_func",
            f"is {router}, and must be {SOFTMAX} (softmax) or {SIGMOID} (sigmoid)",
        )
    if mixture["norm_topk_prob"]:
        raise keys.unsupported("expert_weights_norm", "true is not supported with softmax")
    return {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "topk_method": "group_limited_greedy" if mixture["n_group"] > 1 else "greedy",
    }


def _yarn(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any] | None:
    scaling: dict[str, Any] | None = common["rope_scaling"]
    if scaling is None:
        return None
    if scaling["rope_type"] != "yarn":
        refuse_scaling(keys, common)
    if scaling["factor"] < 1:
        raise keys.unsupported("rope.scaling.factor", "must be 1 or more")
    # The key has a tenth of mscale_all_dim. An equal mscale leaves cosines and sines unscaled.
    scale = 10 * keys.number("rope.scaling.yarn_log_multiplier", low=1e-6, high=1e3)
    return {**scaling, "mscale": scale, "mscale_all_dim": scale}
