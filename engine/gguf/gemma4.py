"""What the keys of a Gemma 4 file mean in config.json."""

from __future__ import annotations

from typing import Any, TypeVar

from engine.architecture.errors import UnsupportedError
from engine.gguf.keys import MOST, FileKeys
from engine.gguf.names import ROPE_FACTORS, gguf_name
from engine.gguf.settings import FULL, SLIDING, windows
from engine.gguf.vectors import read_vector

# What the frequency of a pair that does not turn is divided by, at least.
_STILL = 1e20

Of = TypeVar("Of")


def gemma4(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    count = common["num_hidden_layers"]
    layers = windows(keys, count, 6)
    types = layers["layer_types"]
    shared = keys.integer("attention.shared_kv_layers", 0, low=0, high=count - 1)
    kv_heads = keys.layers(
        "attention.head_count_kv", count, common["num_attention_heads"], high=4096
    )
    inner = keys.layers("feed_forward_length", count, high=MOST)
    found = {
        **layers,
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": keys.integer("attention.key_length_swa", low=2, high=1024),
        "global_head_dim": common["head_dim"],
        "num_key_value_heads": _of(keys, SLIDING, types, kv_heads, "attention.head_count_kv"),
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": _is_double_wide(keys, inner, shared),
        "rope_theta": None,
        "rope_scaling": None,
        "rope_parameters": _ropes(keys, common),
        **_inputs(keys),
        **_experts(keys),
    }
    if _values_are_keys(keys, types[: count - shared]):
        found["attention_k_eq_v"] = True
        found["num_global_key_value_heads"] = _of(
            keys, FULL, types, kv_heads, "attention.head_count_kv"
        )
    elif len(set(kv_heads)) > 1:
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name('attention.head_count_kv')} may differ by layer only "
            "if layers with full attention have no attn_v.weight"
        )
    if keys.is_set("final_logit_softcapping"):
        cap = keys.number("final_logit_softcapping", low=1e-3, high=1e6)
        found["final_logit_softcapping"] = cap
    return found


def _of(keys: FileKeys, kind: str, types: list[str], values: list[Of], key: str) -> Of:
    """Return what all layers of a type have."""
    found = {value for value, own in zip(values, types, strict=True) if own == kind}
    if len(found) != 1:
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name(key)} must be the same for all layers with {kind}, of "
            "which there must be one"
        )
    return found.pop()


def _values_are_keys(keys: FileKeys, types: list[str]) -> bool:
    """``types``: of the layers that do not share others' keys and values."""
    without = [
        gguf_name(f"model.layers.{layer}.self_attn.v_proj.weight") not in keys.header.tensors
        for layer, kind in enumerate(types)
        if kind == FULL
    ]
    return bool(without) and all(without)  # if some lack it, loading names them


def _is_double_wide(keys: FileKeys, inner: list[int], shared: int) -> bool:
    """Layers that share keys and values may have twice the width of the others."""
    own, sharing = set(inner[: len(inner) - shared]), set(inner[len(inner) - shared :])
    if len(own) == 1 and sharing <= own:
        return False
    if len(own) == 1 and sharing == {2 * inner[0]}:
        return True
    raise UnsupportedError(
        f"{keys.all.source}: {keys.name('feed_forward_length')} may differ by layer only in that "
        "layers which share keys and values have twice as much"
    )


def _ropes(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    factors = read_vector(keys.header, ROPE_FACTORS)
    turning = sum(factor == 1.0 for factor in factors)
    if factors != [1.0] * turning + factors[turning:] or any(
        not factor >= _STILL for factor in factors[turning:]
    ):
        raise UnsupportedError(f"{keys.all.source}: {ROPE_FACTORS} must be ones, then above 1e20")
    local = keys.number("rope.freq_base_swa", 10000.0, low=1e-3, high=1e12)
    return {
        FULL: {
            "rope_type": "proportional",
            "partial_rotary_factor": turning / len(factors),
            "rope_theta": common["rope_theta"],
        },
        SLIDING: {"rope_type": "default", "rope_theta": local},
    }


def _inputs(keys: FileKeys) -> dict[str, Any]:
    size = keys.integer("embedding_length_per_layer_input", 0, low=0, high=MOST)
    table = keys.header.tensors.get(gguf_name("model.embed_tokens_per_layer.weight"))
    if not size or table is None:  # loading names the tensor if it is missing
        return {"hidden_size_per_layer_input": size}
    return {"hidden_size_per_layer_input": size, "vocab_size_per_layer_input": table.shape[0]}


def _experts(keys: FileKeys) -> dict[str, Any]:
    if not keys.is_set("expert_count"):
        return {}
    return {
        "enable_moe_block": True,
        "num_experts": keys.integer("expert_count", high=4096),
        "top_k_experts": keys.integer("expert_used_count", high=4096),
        "moe_intermediate_size": keys.integer("expert_feed_forward_length", high=MOST),
    }
