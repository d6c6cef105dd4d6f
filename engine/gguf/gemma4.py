"""What the keys of a Gemma 4 file mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.architecture.errors import UnsupportedError
from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.names import ROPE_FACTORS, gguf_name
from engine.gguf.settings import (
    FULL,
    SLIDING,
    experts,
    has_parameter,
    refuse_scaling,
    window_fields,
)
from engine.gguf.vectors import read_vector

# A pair whose frequency is divided by at least this does not rotate.
_STILL = 1e20


def gemma4(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    refuse_scaling(keys, common)
    count = common["num_hidden_layers"]
    layers = window_fields(keys, count, 6)
    types = layers["layer_types"]
    if types[-1] == SLIDING:
        raise keys.unsupported(
            "attention.sliding_window_pattern", "must leave the last layer without a window"
        )
    head_dim = keys.integer("attention.key_length_swa", low=2, high=1024)
    for key in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if keys.integer(key, head_dim, high=MAX_SIZE) != head_dim:
            raise keys.unsupported(key, f"must be the head size of such layers, {head_dim}")
    shared = keys.integer("attention.shared_kv_layers", 0, low=0, high=count - 1)
    kv_heads = keys.per_layer(
        "attention.head_count_kv", count, common["num_attention_heads"], high=4096
    )
    inner = keys.per_layer("feed_forward_length", count, high=MAX_SIZE)
    found = {
        **layers,
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": head_dim,
        "global_head_dim": common["head_dim"],
        "num_key_value_heads": _kv_heads_of(keys, SLIDING, types, kv_heads),
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": _is_double_wide(keys, inner, shared),
        "rope_theta": None,
        "rope_scaling": None,
        "rope_parameters": _ropes(keys, common),
        **per_layer_inputs(keys),
        **_experts(keys, common),
    }
    if _values_are_keys(keys, types[: count - shared]):
        found["attention_k_eq_v"] = True
        found["num_global_key_value_heads"] = _kv_heads_of(keys, FULL, types, kv_heads)
    elif len(set(kv_heads)) > 1:
        raise keys.unsupported(
            "attention.head_count_kv",
            "may differ by layer only if layers with full attention have no attn_v.weight",
        )
    if keys.is_set("final_logit_softcapping"):
        cap = keys.number("final_logit_softcapping", low=1e-3, high=1e6)
        found["final_logit_softcapping"] = cap
    return found


def _kv_heads_of(keys: ArchitectureKeys, kind: str, types: list[str], kv_heads: list[int]) -> int:
    """Return what all layers of a type have."""
    found = {count for count, own in zip(kv_heads, types, strict=True) if own == kind}
    if len(found) != 1:
        raise keys.unsupported(
            "attention.head_count_kv",
            f"must be the same in all layers of type {kind}, of which there must be one or more",
        )
    return found.pop()


def _values_are_keys(keys: ArchitectureKeys, types: list[str]) -> bool:
    """``types``: of the layers that do not share others' keys and values."""
    without = [
        not has_parameter(keys, f"model.layers.{layer}.self_attn.v_proj.weight")
        for layer, kind in enumerate(types)
        if kind == FULL
    ]
    return bool(without) and all(without)  # if some lack it, loading names them


def _is_double_wide(keys: ArchitectureKeys, inner: list[int], shared: int) -> bool:
    """Layers that share keys and values may have twice the width of the others."""
    split = len(inner) - shared
    own, sharing = set(inner[:split]), set(inner[split:])
    if len(own) == 1 and sharing <= own:
        return False
    if len(own) == 1 and sharing == {2 * inner[0]}:
        return True
    raise keys.unsupported(
        "feed_forward_length",
        "must be the same in all layers, except that those that share keys and values may all have "
        "twice as much",
    )


def _ropes(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    factors = read_vector(keys.header, ROPE_FACTORS, common["head_dim"] // 2)
    turning = factors.count(1.0)
    if factors[:turning] != [1.0] * turning or not all(
        factor >= _STILL for factor in factors[turning:]
    ):
        raise UnsupportedError(
            f"{keys.file.source}: {ROPE_FACTORS} must be ones followed by values of at least 1e20"
        )
    local = keys.number("rope.freq_base_swa", 10000.0, low=1e-3, high=1e12)
    return {
        FULL: {
            "rope_type": "proportional",
            "partial_rotary_factor": turning / len(factors),
            "rope_theta": common["rope_theta"],
        },
        SLIDING: {"rope_type": "default", "rope_theta": local},
    }


def per_layer_inputs(keys: ArchitectureKeys, *, least: int = 0) -> dict[str, Any]:
    """``least``: the smallest size allowed; if it is 0, the key may be missing."""
    usual = None if least else 0
    size = keys.integer("embedding_length_per_layer_input", usual, low=least, high=MAX_SIZE)
    table = keys.header.tensors.get(gguf_name("model.embed_tokens_per_layer.weight"))
    if not size or table is None:  # loading names the tensor if it is missing
        return {"hidden_size_per_layer_input": size}
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": table.shape[0]}


def _experts(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    if not keys.is_set("expert_count"):
        return {}
    found = experts(keys, common, "expert_feed_forward_length")
    return {
        "enable_moe_block": True,
        "num_experts": found["num_experts"],
        "top_k_experts": found["num_experts_per_tok"],
        "moe_intermediate_size": found["moe_intermediate_size"],
    }
