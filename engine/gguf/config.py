"""The ``config.json`` that corresponds to the keys of a GGUF file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.blocks import SUPPORTED_TYPES
from engine.gguf.container import GgufHeader
from engine.gguf.families import family_of, keys_of
from engine.gguf.family import GgufFamily
from engine.gguf.keys import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_POSITIONS,
    MAX_SIZE,
    TOKENS_KEY,
    ArchitectureKeys,
)
from engine.gguf.names import POSITIONS, ROPE_FACTORS, ROUTER, gguf_name, layer_of
from engine.gguf.settings import LONG_FACTORS, has_parameter
from engine.gguf.vectors import read_vector

_END_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
# Llama 3's scaling is stored as its result. These are the values of all its models.
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_FACTOR_ERROR = 1e-3
_LEAST_BASE = 1.001  # of 1, all frequencies would be equal


def config_json(header: GgufHeader) -> dict[str, Any]:
    """Raises ConfigError, and UnsupportedError for what is not supported as GGUF."""
    keys, family = keys_of(header), family_of(header)
    _check_types(header)
    common = _common(keys, family)
    return {**common, **family.settings(keys, common)}


def _check_types(header: GgufHeader) -> None:
    for name, tensor in header.tensors.items():
        if tensor.type.name not in SUPPORTED_TYPES:
            raise UnsupportedError(
                f"{header.path}: {name} has type {tensor.type.name}, which is not supported "
                f"(supported: {', '.join(SUPPORTED_TYPES)}); choose a file of another "
                "quantization of the model, such as Q4_K_M"
            )


def _common(keys: ArchitectureKeys, family: GgufFamily) -> dict[str, Any]:
    """Return the fields that all families have."""
    embedding = keys.header.tensors.get(gguf_name("model.embed_tokens.weight"))
    if embedding is None or len(embedding.shape) != 2:
        raise ConfigError(f"{keys.file.source} has no matrix token_embd.weight")
    heads = keys.integer("attention.head_count", high=MAX_HEADS)
    hidden = keys.integer("embedding_length", high=MAX_SIZE)
    head_dim = _head_dim(keys, family, hidden // heads)
    layers = _layer_count(keys)
    key_value_heads = _key_value_heads(keys, family, layers, heads)
    if heads % key_value_heads:
        raise keys.unsupported("attention.head_count_kv", f"must divide the {heads} heads")
    positions = keys.integer("context_length", high=MAX_POSITIONS)
    if not keys.file.flag(keys.name("attention.causal"), True):
        raise keys.unsupported("attention.causal", "false is not supported; it must be true")
    return {
        "architectures": [family.architecture],
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": _feed_forward_size(keys, family, layers),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        "rms_norm_eps": keys.number(family.norm_key, low=0.0, high=1.0),
        "rope_theta": keys.number("rope.freq_base", 10000.0, low=_LEAST_BASE, high=1e12),
        "rope_scaling": _rope_scaling(keys, family, head_dim, positions),
        "tie_word_embeddings": not has_parameter(keys, "lm_head.weight"),
        "attention_bias": has_parameter(keys, "model.layers.0.self_attn.q_proj.bias"),
        "mlp_bias": has_parameter(keys, "model.layers.0.mlp.gate_proj.bias"),
        "dtype": _dtype(keys.header, family),
        "eos_token_id": _end_tokens(keys, family),
    }


def _layer_count(keys: ArchitectureKeys) -> int:
    """Raises ConfigError unless so many layers have tensors, so that nothing is done for layers
    that do not exist."""
    count = keys.integer("block_count", high=4096)
    there = len({layer_of(name) for name in keys.header.tensors} - {None})
    if count != there:
        raise ConfigError(
            f"{keys.file.source}: {keys.name('block_count')} is {count}, and the file has tensors "
            f"of {there} layers"
        )
    return count


def _head_dim(keys: ArchitectureKeys, family: GgufFamily, usual: int) -> int:
    if family.has_mla:
        return keys.integer("rope.dimension_count", low=2, high=MAX_HEAD_DIM)
    head_dim = keys.integer("attention.key_length", max(1, usual), low=2, high=MAX_HEAD_DIM)
    same = ["attention.value_length"]
    if family.has_rope and not family.has_partial_rope:
        same.append("rope.dimension_count")
    for key in same:
        if keys.integer(key, head_dim, high=MAX_SIZE) != head_dim:
            raise keys.unsupported(key, f"must be the head size, {head_dim}")
    return head_dim


def _first_size(
    keys: ArchitectureKeys, family: GgufFamily, key: str, layers: int, default: int | None = None
) -> int:
    """Return what the first layer has, and all others unless the family's layers differ."""
    sizes = keys.per_layer(key, layers, default, high=MAX_SIZE)
    if len(set(sizes)) > 1 and not family.layers_differ:
        raise keys.unsupported(key, "must be the same in all layers")
    return sizes[0]


def _key_value_heads(keys: ArchitectureKeys, family: GgufFamily, layers: int, heads: int) -> int:
    if family.has_mla:  # files have one head, of the latents
        return heads
    key = "attention.head_count_kv"
    if family.has_layers_without_kv:
        return _one_size(keys, key, layers)
    return _first_size(keys, family, key, layers, heads)


def _one_size(keys: ArchitectureKeys, key: str, layers: int) -> int:
    """Return the size that is the same in all layers where it is not 0."""
    found = {*keys.per_layer(key, layers, low=0, high=MAX_SIZE)} - {0}
    if not found:
        raise keys.unsupported(key, "must be above 0 in some layer")
    if len(found) > 1:
        raise keys.unsupported(key, "must be the same in all layers where it is not 0")
    return found.pop()


def _feed_forward_size(keys: ArchitectureKeys, family: GgufFamily, layers: int) -> int:
    """A mixture's experts may be all that it has, and theirs all that its file says."""
    experts, key = "expert_feed_forward_length", "feed_forward_length"
    if family.has_layers_without_feed_forward:
        return _one_size(keys, key, layers)
    usual = keys.integer(experts, high=MAX_SIZE) if keys.has(experts) else None
    return _first_size(keys, family, key, layers, usual)


def _end_tokens(keys: ArchitectureKeys, family: GgufFamily) -> list[int]:
    """Return the tokens after which an answer ends: those that keys name, and those that are known
    by their texts, since files have no generation_config.json."""
    found = [
        keys.file.integer(key, low=0, high=MAX_SIZE) for key in _END_KEYS if keys.file.has(key)
    ]
    texts = keys.file.texts(TOKENS_KEY)
    found += [number for number, text in enumerate(texts) if text in family.end_tokens]
    return [*dict.fromkeys(found)]


def _dtype(header: GgufHeader, family: GgufFamily) -> str:
    """Return the dtype in which to compute, where the device supports it: float32 or bfloat16 if
    all matrices have that type; else float16, in which no scale loses anything, or bfloat16 if
    activations exceed float16's range."""
    kinds = {
        tensor.type.name
        for name, tensor in header.tensors.items()
        if len(tensor.shape) > 1
        and name.endswith(".weight")
        and ROUTER not in name  # always F32
        and name != f"{POSITIONS}.weight"  # likewise
    }
    if kinds == {"F32"}:
        return "float32"
    is_wide = family.is_wide or family.by_transformers
    return "bfloat16" if kinds == {"BF16"} or is_wide else "float16"


def _rope_scaling(
    keys: ArchitectureKeys, family: GgufFamily, head_dim: int, positions: int
) -> dict[str, Any] | None:
    scaling = _stated_scaling(keys, family, positions)
    if ROPE_FACTORS not in keys.header.tensors.keys() - family.vectors:
        return scaling
    if scaling is not None:
        raise keys.unsupported("rope.scaling.type", f"is not supported with {ROPE_FACTORS}")
    if family.by_transformers and not family.has_rope_factors:
        raise UnsupportedError(
            f"{keys.file.source}: {ROPE_FACTORS} is not supported with {keys.prefix}"
        )
    return _llama3_scaling(keys, head_dim)


def _stated_scaling(
    keys: ArchitectureKeys, family: GgufFamily, positions: int
) -> dict[str, Any] | None:
    has_long = LONG_FACTORS in family.vectors
    if not has_long and keys.number("rope.scaling.attn_factor", 1.0, low=0.0, high=1e6) != 1.0:
        raise keys.unsupported("rope.scaling.attn_factor", "is not supported; it must be 1")
    # As in llama.cpp, a factor without a type is linear; old files have it under another name.
    kind = keys.file.text(keys.name("rope.scaling.type"), "linear")
    factor = keys.number("rope.scale_linear", 1.0, low=1e-3, high=1e6)
    factor = keys.number("rope.scaling.factor", factor, low=1e-3, high=1e6)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "longrope" and has_long:  # its factors are read with the family's settings
        if factor != 1.0:
            raise keys.unsupported("rope.scaling.factor", "is not supported with LongRoPE")
        return None
    if kind != "yarn":
        raise keys.unsupported("rope.scaling.type", f"{kind!r} is not supported")
    original = keys.integer("rope.scaling.original_context_length", positions, high=MAX_POSITIONS)
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": keys.number("rope.scaling.yarn_beta_fast", 32.0, low=1e-6, high=1e6),
        "beta_slow": keys.number("rope.scaling.yarn_beta_slow", 1.0, low=1e-6, high=1e6),
    }
    if keys.has("rope.scaling.yarn_attn_factor"):
        whole = keys.number("rope.scaling.yarn_attn_factor", low=0.0, high=1e6)
        scaling["attention_factor"] = whole
    return scaling


def _llama3_scaling(keys: ArchitectureKeys, head_dim: int) -> dict[str, Any]:
    """Return the parameters that give the stored factors. Raises UnsupportedError if none do."""
    factors = np.array(read_vector(keys.header, ROPE_FACTORS, head_dim // 2))
    factor = float(factors.max())
    base = keys.number("rope.freq_base", 10000.0, low=1e-3, high=1e12)
    expected = _llama3_factors(base, factor, factors.size)
    # "not" also refuses NaN.
    if not np.abs(factors / expected - 1).max() <= _FACTOR_ERROR:
        raise UnsupportedError(
            f"{keys.file.source}: {ROPE_FACTORS} is not the scaling of a Llama 3 model; serve the "
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
