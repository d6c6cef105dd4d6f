"""What the keys of GGUF files of DeepSeek V3, and of GLM-4.7 Flash, which is built like it, mean in
config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_HEAD_DIM, MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import (
    SIGMOID,
    layers_without_mtp,
    mixture_with_shared,
    refuse_scaling,
    rope_parameters,
)

_FLASH_VOCABULARY = 154_880


def deepseek2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    layers = layers_without_mtp(keys, common)
    _check_router(keys, common)
    if keys.is_set("attention.temperature_scale"):
        raise keys.unsupported("attention.temperature_scale", "is not supported")
    turning = common["head_dim"]
    if turning % 2:
        raise keys.file.error(keys.name("rope.dimension_count"), "an even number", turning)
    # Older files have no _mla keys: there, key_length and value_length are the sizes of a head.
    ending = "_mla" if keys.has("attention.key_length_mla") else ""
    of_key, of_value = f"attention.key_length{ending}", f"attention.value_length{ending}"
    return {
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "kv_lora_rank": keys.integer("attention.kv_lora_rank", high=MAX_SIZE),
        "q_lora_rank": keys.integer("attention.q_lora_rank", high=MAX_SIZE)
        if keys.has("attention.q_lora_rank")
        else None,
        "qk_rope_head_dim": turning,
        "qk_nope_head_dim": keys.integer(of_key, low=turning + 1, high=MAX_HEAD_DIM) - turning,
        "v_head_dim": keys.integer(of_value, high=MAX_HEAD_DIM),
        "rope_interleave": True,
        **mixture_with_shared(keys, common, layers),
        **rope_parameters(_yarn(keys, common), common["rope_theta"]),
    }


def _check_router(keys: ArchitectureKeys, common: dict[str, Any]) -> None:
    """Raise UnsupportedError if experts are not chosen by the sigmoid. Only the first files of
    GLM-4.7 Flash do not say so."""
    is_flash = common["num_hidden_layers"] in (47, 48) and common["vocab_size"] == _FLASH_VOCABULARY
    router = keys.integer("expert_gating_func", SIGMOID if is_flash else 1, low=0, high=4096)
    if router != SIGMOID:
        raise keys.unsupported(
            "expert_gating_func",
            f"is {router}, and must be {SIGMOID} (sigmoid): files of DeepSeek V2, which do not say "
            "so, are not supported; serve the original checkpoint",
        )


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
