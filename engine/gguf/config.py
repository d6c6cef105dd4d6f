"""The ``config.json`` that corresponds to the keys of a GGUF file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.families import GgufFamily, family_of, keys_of
from engine.gguf.keys import MOST, FileKeys
from engine.gguf.names import IN_FLOATS, ROPE_FACTORS, gguf_name
from engine.gguf.vectors import read_vector

_MAX_POSITIONS = 1 << 30

_END_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
# Llama 3's scaling is stored as its result. These are the values of all its models.
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_FACTOR_ERROR = 1e-3


def config_json(header: GgufHeader) -> dict[str, Any]:
    """Raises ConfigError, and UnsupportedError for what is not supported as GGUF."""
    keys, family = keys_of(header), family_of(header)
    common = _common(keys, family)
    return {**common, **family.settings(keys, common)}


def _common(keys: FileKeys, family: GgufFamily) -> dict[str, Any]:
    """Return the fields that all families have."""
    tensors = keys.header.tensors
    embedding = tensors.get(gguf_name("model.embed_tokens.weight"))
    if embedding is None or len(embedding.shape) != 2:
        raise ConfigError(f"{keys.all.source} has no matrix token_embd.weight")
    heads = keys.integer("attention.head_count", high=4096)
    hidden = keys.integer("embedding_length", high=MOST)
    head_dim = keys.integer("attention.key_length", max(1, hidden // heads), low=2, high=1024)
    whole = ("attention.value_length",)
    for key in whole if family.turns_in_part else (*whole, "rope.dimension_count"):
        if keys.integer(key, head_dim, high=MOST) != head_dim:
            raise UnsupportedError(
                f"{keys.all.source}: {keys.name(key)} differs from the head's size"
            )
    positions = keys.integer("context_length", high=_MAX_POSITIONS)
    layers = keys.integer("block_count", high=4096)

    def first(key: str, default: int | None, high: int) -> int:
        """Return what the first layer has, and all others unless layers differ."""
        sizes = keys.layers(key, layers, default, high=high)
        if len(set(sizes)) > 1 and not family.layers_differ:
            raise UnsupportedError(f"{keys.all.source}: {keys.name(key)} differs by layer")
        return sizes[0]

    # Mixtures of experts have no other feed-forward, so that a file may leave its size out.
    inner = "expert_feed_forward_length"
    usual = keys.integer(inner, high=MOST) if keys.has(inner) else None
    return {
        "architectures": [family.architecture],
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": first("feed_forward_length", usual, MOST),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": first("attention.head_count_kv", heads, 4096),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
        "rope_theta": keys.number("rope.freq_base", 10000.0, low=1e-3, high=1e12),
        "rope_scaling": _rope_scaling(keys, family, positions),
        "tie_word_embeddings": gguf_name("lm_head.weight") not in tensors,
        "attention_bias": gguf_name("model.layers.0.self_attn.q_proj.bias") in tensors,
        "mlp_bias": gguf_name("model.layers.0.mlp.gate_proj.bias") in tensors,
        "dtype": _dtype(keys.header, family),
        "eos_token_id": [
            keys.all.integer(key, low=0, high=MOST) for key in _END_KEYS if keys.all.has(key)
        ],
    }


def _dtype(header: GgufHeader, family: GgufFamily) -> str:
    """Return the float type with which the model is computed where the device supports it: that of
    the matrices if they are floats, else float16, in which no scale loses anything. If activations
    exceed float16, bfloat16."""
    kinds = {
        tensor.type.name
        for tensor in header.tensors.values()
        if len(tensor.shape) > 1 and not any(part in tensor.name for part in IN_FLOATS)
    }
    if "F32" in kinds:
        return "float32"
    return "bfloat16" if kinds == {"BF16"} or family.is_wide else "float16"


def _rope_scaling(keys: FileKeys, family: GgufFamily, positions: int) -> dict[str, Any] | None:
    if ROPE_FACTORS in keys.header.tensors.keys() - family.vectors:
        return _llama3_scaling(keys)
    kind = keys.all.text(keys.name("rope.scaling.type"), "none")
    if kind in ("none", "longrope"):  # LongRoPE's factors are read with the family's settings
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name('rope.scaling.type')} {kind!r} is unsupported"
        )
    factor = keys.number("rope.scaling.factor", 1.0, low=1e-3, high=1e6)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = keys.integer("rope.scaling.original_context_length", positions, high=_MAX_POSITIONS)
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0, low=1e-6, high=1e6),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0, low=1e-6, high=1e6),
    }
    if keys.number("rope.scaling.attn_factor", 1.0, low=0.0, high=1e6) != 1.0:
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name('rope.scaling.attn_factor')} is not supported with YaRN"
        )
    if keys.has("rope.scaling.yarn_attn_factor"):
        factor = keys.number("rope.scaling.yarn_attn_factor", low=0.0, high=1e6)
        scaling["attention_factor"] = factor
    return scaling


def _llama3_scaling(keys: FileKeys) -> dict[str, Any]:
    """Return the parameters that give the stored factors. Raises UnsupportedError if none do."""
    factors = np.array(read_vector(keys.header, ROPE_FACTORS))
    factor = float(factors.max())
    base = keys.number("rope.freq_base", 10000.0, low=1e-3, high=1e12)
    expected = _llama3_factors(base, factor, factors.size)
    # "not" also refuses NaN.
    if not np.abs(factors / expected - 1).max() <= _FACTOR_ERROR:
        raise UnsupportedError(
            f"{keys.all.source}: {ROPE_FACTORS} is not the scaling of a Llama 3 model; serve the "
            "original checkpoint"
        )
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}


def _llama3_factors(base: float, factor: float, count: int) -> np.ndarray[Any, Any]:
    """What Llama 3's scaling divides each of ``count`` frequencies by."""
    frequencies = base ** -(np.arange(count) / count)
    turns = _LLAMA3["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1 / ((1 - smooth) / factor + smooth)
