"""Makes a tiny configuration of the same kind as a given one: for the trial before loading."""

from __future__ import annotations

from copy import deepcopy
from itertools import zip_longest
from typing import Any

VOCABULARY = 199
LAYERS = 4

# The largest value of each size. Sizes that are not named here stay, so that their relations do.
_MOST: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 64),
    **dict.fromkeys(
        ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "intermediate_size_mlp"), 96
    ),
    **dict.fromkeys(
        (
            *("moe_intermediate_size", "shared_expert_intermediate_size"),
            *(
                "shared_intermediate_size",
                "expert_ffn_hidden_size",
                "prefix_dense_intermediate_size",
            ),
            *("moe_shared_expert_intermediate_size", "dense_intermediate_size"),
        ),
        32,
    ),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 8),
    **dict.fromkeys(
        ("num_experts_per_tok", "moe_k", "top_k_experts", "moe_topk", "num_experts_per_token"), 2
    ),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "moe_layer_freq"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
    **dict.fromkeys(("head_dim", "v_head_dim", "qk_nope_head_dim", "kv_channels"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("swa_head_dim", "swa_v_head_dim"), 16),
    **dict.fromkeys(("q_lora_rank", "global_head_dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("kv_lora_rank", "swa_rope_dim"), 16),
    **dict.fromkeys(("sliding_window", "window_size", "sliding_window_size"), 6),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 256),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(
        ("mamba_d_head", "mamba_head_dim", "mamba_d_state", "ssm_state_size", "attention_head_dim"),
        16,
    ),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("mamba_d_ssm",), 128),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), 1),
    **dict.fromkeys(("linear_num_key_heads",), 2),
    **dict.fromkeys(("laurel_rank", "num_kv_shared_layers", "num_nextn_predict_layers"), 2),
}
_HEADS = ("num_attention_heads", "n_head", "swa_num_attention_heads")
_KV_HEADS = (
    *("num_key_value_heads", "swa_num_key_value_heads", "num_global_key_value_heads"),
    "num_kv_heads",
)
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_STATE_SIZES = ("mamba_d_ssm", "mamba_n_heads", "mamba_d_head")  # the first is the others' product
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")


def shrunk(config: Any) -> Any:
    """Return a configuration of the same class with a few narrow layers, of all kinds that
    ``config`` has, and a small vocabulary. Flags, kinds of norms and the like stay."""
    values = {name: value for name, value in config.to_dict().items() if not name.startswith("_")}
    return type(config)(**shrunk_values(values))


def shrunk_values(values: dict[str, Any]) -> dict[str, Any]:
    """Do the same for a configuration's fields."""
    total = next((values[name] for name in _LAYERS if isinstance(values.get(name), int)), LAYERS)
    kept = _kept_layers(values, total)
    tiny: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("model_type", "architectures", "dtype", "torch_dtype"):
            continue
        tiny[name] = _small(name, deepcopy(value), kept, total)
    heads = max((values[name] for name in _HEADS if isinstance(values.get(name), int)), default=0)
    for name in _KV_HEADS:
        if isinstance(values.get(name), int):
            tiny[name] = min(values[name], 4 if values[name] >= heads else 2)
    for place, name in enumerate(_TOKENS):
        if values.get(name) is not None:
            tiny[name] = [place] if isinstance(values[name], list) else place
    _renumber_layers(values, tiny, kept)
    _fit_head(values, tiny)
    _cut_factors(tiny)
    if all(isinstance(tiny.get(name), int) for name in _STATE_SIZES):
        size, heads, head_dim = _STATE_SIZES
        tiny[size] = tiny[heads] * tiny[head_dim]
    return tiny


def _kept_layers(values: dict[str, Any], total: int) -> list[int]:
    """Return which layers to keep: of each kind in turn, at least LAYERS in all, if there are as
    many."""
    types = values.get("layer_types")
    if not isinstance(types, list) or len(types) != total:
        return list(range(min(LAYERS, total)))
    of_kind: dict[str, list[int]] = {}
    for number, kind in enumerate(types):
        of_kind.setdefault(kind, []).append(number)
    in_turn = [each for turn in zip_longest(*of_kind.values()) for each in turn if each is not None]
    return in_turn[: max(LAYERS, 2 * len(of_kind))]


def _renumber_layers(values: dict[str, Any], tiny: dict[str, Any], kept: list[int]) -> None:
    """Keep what is set for single layers, by their number: a larger size remains larger."""
    own = values.get("per_layer_config")
    if not isinstance(own, dict):
        return
    by_number = {int(number): fields for number, fields in own.items()}
    tiny["per_layer_config"] = {
        number: {
            name: 2 * tiny[name] if _is_size(name, value) and value > values[name] else value
            for name, value in by_number[old].items()
        }
        for number, old in enumerate(kept)
        if old in by_number
    }


def _is_size(name: str, value: Any) -> bool:
    return name in _MOST and isinstance(value, int)


def _small(name: str, value: Any, kept: list[int], total: int) -> Any:
    if isinstance(value, bool):
        return value
    if name in _LAYERS and isinstance(value, int):
        return len(kept)
    if isinstance(value, list) and len(value) == total:
        return [_small(name, value[number], [], 0) for number in kept]
    most = _MOST.get(name)
    if most is not None and isinstance(value, int):
        return min(value, most)
    return value


def _fit_head(values: dict[str, Any], tiny: dict[str, Any]) -> None:
    """With latent attention (DeepSeek), let ``head_dim`` be the same part of a head as before."""
    parts = ("qk_nope_head_dim", "qk_rope_head_dim")
    if not all(isinstance(values.get(name), int) for name in parts):
        return
    nope, rope = (values[name] for name in parts)
    small_nope, small_rope = (tiny[name] for name in parts)
    if values.get("head_dim") == rope:
        tiny["head_dim"] = small_rope
    for name in ("head_dim", "qk_head_dim"):
        if values.get(name) == nope + rope:
            tiny[name] = small_nope + small_rope


def _cut_factors(tiny: dict[str, Any]) -> None:
    """Cut a rope's lists of factors, one for each pair of a head's elements that turns."""
    rope = tiny.get("rope_parameters") or tiny.get("rope_scaling")
    if not isinstance(rope, dict):
        return
    heads = next((tiny[name] for name in _HEADS if isinstance(tiny.get(name), int)), 1)
    head_dim = tiny.get("head_dim") or tiny.get("qk_rope_head_dim") or tiny["hidden_size"] // heads
    share = rope.get("partial_rotary_factor") or tiny.get("partial_rotary_factor") or 1.0
    pairs = int(head_dim * share) // 2
    rope |= {
        name: rope[name][:pairs]
        for name in ("long_factor", "short_factor")
        if isinstance(rope.get(name), list)
    }
