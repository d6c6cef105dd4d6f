"""The ``config.json`` that corresponds to the keys of a GGUF file."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.keys import GgufKeys
from engine.gguf.names import ROPE_FACTORS, gguf_name
from engine.weights.file import TensorFile

ARCHITECTURE_KEY = "general.architecture"
_MOST = 1 << 24
_MAX_POSITIONS = 1 << 30


class _Family(NamedTuple):
    """``permuted``: rows of query and key are in the order in which pairs to rotate are adjacent,
    instead of half a head apart."""

    architecture: str
    permuted: bool = False


# By general.architecture. Mistral's models are "llama" too.
FAMILIES = {
    "llama": _Family("LlamaForCausalLM", permuted=True),
    "qwen2": _Family("Qwen2ForCausalLM"),
    "qwen3": _Family("Qwen3ForCausalLM"),
}

_END_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
# Llama 3's scaling is stored as its result. These are the values of all its models.
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_FACTOR_ERROR = 1e-3


def family_of(header: GgufHeader) -> _Family:
    """Raises UnsupportedError."""
    name = GgufKeys(header).text(ARCHITECTURE_KEY)
    if name not in FAMILIES:
        raise UnsupportedError(
            f"{header.path}: {ARCHITECTURE_KEY} {name!r} is not supported as GGUF; supported: "
            f"{', '.join(FAMILIES)}; for others, serve the original checkpoint"
        )
    return FAMILIES[name]


def config_json(header: GgufHeader) -> dict[str, Any]:
    """Raises ConfigError, and UnsupportedError for what is not supported as GGUF."""
    keys, family = GgufKeys(header), family_of(header)
    prefix = keys.text(ARCHITECTURE_KEY)
    _refuse_unserved(keys, prefix)
    embedding = header.tensors.get(gguf_name("model.embed_tokens.weight"))
    if embedding is None or len(embedding.shape) != 2:
        raise ConfigError(f"{header.path} has no matrix token_embd.weight")
    heads = keys.integer(f"{prefix}.attention.head_count", low=1, high=4096)
    hidden = keys.integer(f"{prefix}.embedding_length", low=1, high=_MOST)
    head_dim = keys.integer(
        f"{prefix}.attention.key_length", max(1, hidden // heads), low=2, high=1024
    )
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(f"{prefix}.{key}", head_dim, low=1, high=_MOST) != head_dim:
            raise UnsupportedError(f"{header.path}: {prefix}.{key} differs from the head's size")
    positions = keys.integer(f"{prefix}.context_length", low=1, high=_MAX_POSITIONS)
    return {
        "architectures": [family.architecture],
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": keys.integer(f"{prefix}.feed_forward_length", low=1, high=_MOST),
        "num_hidden_layers": keys.integer(f"{prefix}.block_count", low=1, high=4096),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.integer(
            f"{prefix}.attention.head_count_kv", heads, low=1, high=4096
        ),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": positions,
        "rms_norm_eps": keys.number(
            f"{prefix}.attention.layer_norm_rms_epsilon", low=0.0, high=1.0
        ),
        "rope_theta": keys.number(f"{prefix}.rope.freq_base", 10000.0, low=1e-3, high=1e12),
        "rope_scaling": _rope_scaling(header, keys, prefix, positions),
        "tie_word_embeddings": gguf_name("lm_head.weight") not in header.tensors,
        "attention_bias": gguf_name("model.layers.0.self_attn.q_proj.bias") in header.tensors,
        "mlp_bias": gguf_name("model.layers.0.mlp.gate_proj.bias") in header.tensors,
        "dtype": _dtype(header),
        "eos_token_id": [
            keys.integer(key, low=0, high=_MOST) for key in _END_KEYS if keys.has(key)
        ],
    }


def _refuse_unserved(keys: GgufKeys, prefix: str) -> None:
    if keys.integer("split.count", 1, low=0, high=1 << 16) > 1:
        raise UnsupportedError(
            f"{keys.source} is one of several files; merge them with 'llama-gguf-split --merge'"
        )
    if keys.integer(f"{prefix}.expert_count", 0, low=0, high=1 << 16):
        raise UnsupportedError(
            f"{keys.source}: mixtures of experts are not supported as GGUF; serve the original "
            "checkpoint"
        )


def _dtype(header: GgufHeader) -> str:
    """Return the float type with which the model is computed where the device supports it: that of
    the matrices if they are floats, else float16, in which no scale loses anything."""
    kinds = {tensor.type.name for tensor in header.tensors.values() if len(tensor.shape) > 1}
    if "F32" in kinds:
        return "float32"
    return "bfloat16" if kinds == {"BF16"} else "float16"


def _rope_scaling(
    header: GgufHeader, keys: GgufKeys, prefix: str, positions: int
) -> dict[str, Any] | None:
    if ROPE_FACTORS in header.tensors:
        return _llama3_scaling(header, keys, prefix)
    kind = keys.text(f"{prefix}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedError(f"{header.path}: {prefix}.rope.scaling.type {kind!r} is unsupported")
    factor = keys.number(f"{prefix}.rope.scaling.factor", 1.0, low=1e-3, high=1e6)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = keys.integer(
        f"{prefix}.rope.scaling.original_context_length", positions, low=1, high=_MAX_POSITIONS
    )
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": keys.number(f"{prefix}.rope.scaling.yarn_beta_fast", 32.0, low=1e-6, high=1e6),
        "beta_slow": keys.number(f"{prefix}.rope.scaling.yarn_beta_slow", 1.0, low=1e-6, high=1e6),
    }


def _llama3_scaling(header: GgufHeader, keys: GgufKeys, prefix: str) -> dict[str, Any]:
    """Return the parameters that give the stored factors. Raises UnsupportedError if none do."""
    stored = header.tensors[ROPE_FACTORS]
    if stored.type.name != "F32" or math.prod(stored.shape) > _MOST:
        raise UnsupportedError(f"{header.path}: {ROPE_FACTORS} is of type {stored.type.name}")
    factors = np.empty(stored.shape, np.float32)
    with closing(TensorFile(header.path)) as file:
        file.read_into(factors.data.cast("B"), stored.begin)
    factor = float(factors.max())
    base = keys.number(f"{prefix}.rope.freq_base", 10000.0, low=1e-3, high=1e12)
    expected = _llama3_factors(base, factor, factors.size)
    # "not" also refuses NaN.
    if not np.abs(factors / expected - 1).max() <= _FACTOR_ERROR:
        raise UnsupportedError(
            f"{header.path}: {ROPE_FACTORS} is not the scaling of a Llama 3 model; serve the "
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
