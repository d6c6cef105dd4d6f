"""Which architectures GGUF files may have, and what each one's keys mean in config.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.architecture.errors import UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.keys import GgufKeys
from engine.gguf.vectors import MOST, read_vector

ARCHITECTURE_KEY = "general.architecture"
_LONG_FACTORS, _SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
_MOST_POSITIONS = 1 << 30
_SLIDING, _FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The keys of a file. Those of its architecture are named without the prefix."""

    header: GgufHeader
    all: GgufKeys
    prefix: str

    def name(self, key: str) -> str:
        return f"{self.prefix}.{key}"

    def has(self, key: str) -> bool:
        return self.all.has(self.name(key))

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int) -> int:
        return self.all.integer(self.name(key), default, low=low, high=high)

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        return self.all.number(self.name(key), default, low=low, high=high)

    def is_set(self, key: str) -> bool:
        """True if the number ``key`` is given and is not 0."""
        return self.has(key) and self.number(key, low=-1e30, high=1e30) != 0


Settings = Callable[[FileKeys, dict[str, Any]], dict[str, Any]]


def _nothing(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """``architecture``: as in config.json. ``permuted``: rows of query and key are in the order in
    which pairs to rotate are adjacent, instead of half a head apart. ``modules``: what a layer's
    modules are called, where that is not as in Llama's files. ``vectors``: tensors that belong to
    the configuration. ``settings``: given the file's keys and the fields that all families have,
    returns the other fields of config.json. ``turns_in_part``: rotary embeddings may turn a part of
    each head. ``is_wide``: activations exceed what float16 can hold. ``variants``: the family that
    a file is of instead if it has a key of this name, not 0."""

    architecture: str
    permuted: bool = False
    modules: Mapping[str, str] = field(default_factory=dict)
    vectors: frozenset[str] = frozenset()
    settings: Settings = _nothing
    turns_in_part: bool = False
    is_wide: bool = False
    has_experts: bool = False
    variants: Mapping[str, GgufFamily] = field(default_factory=dict)


def _experts(keys: FileKeys, inner: str) -> dict[str, Any]:
    """``inner``: the key of an expert's size."""
    return {
        "num_experts": keys.integer("expert_count", high=4096),
        "num_experts_per_tok": keys.integer("expert_used_count", high=4096),
        "moe_intermediate_size": keys.integer(inner, high=MOST),
    }


def _mixtral(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = _experts(keys, "feed_forward_length")
    return {
        "num_local_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
        "sliding_window": None,
    }


def _olmoe(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = _experts(keys, "feed_forward_length")
    del found["moe_intermediate_size"]  # it is the feed-forward's
    return {**found, "norm_topk_prob": False}


def _qwen3_moe(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {**_experts(keys, "expert_feed_forward_length"), "norm_topk_prob": True}


def _ministral3(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Queries are scaled by position, and the temperature of YaRN is divided by another."""
    scaling = common["rope_scaling"]
    if scaling is None or scaling["rope_type"] != "yarn":
        raise UnsupportedError(f"{keys.all.source}: {keys.prefix} without YaRN is not supported")
    return {
        "rope_scaling": None,
        "rope_parameters": {
            **scaling,
            "rope_theta": common["rope_theta"],
            "llama_4_scaling_beta": keys.number("attention.temperature_scale", low=0.0, high=1e3),
            "mscale": 1.0,
            "mscale_all_dim": keys.number(
                "rope.scaling.yarn_log_multiplier", 0.0, low=0.0, high=1e3
            ),
        },
        "sliding_window": None,
    }


def _granite(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    usual = common["head_dim"] ** -0.5
    return {
        "attention_multiplier": keys.number("attention.scale", usual, low=1e-6, high=1e6),
        "embedding_multiplier": keys.number("embedding_scale", 1.0, low=1e-6, high=1e6),
        "residual_multiplier": keys.number("residual_scale", 1.0, low=1e-6, high=1e6),
        "logits_scaling": keys.number("logit_scale", 1.0, low=1e-6, high=1e6),
    }


def _smollm3(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Files do not say which layers have no rotary embeddings: every fourth."""
    return {"no_rope_layer_interval": 4}


def _olmo3(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    return _windows(keys, common["num_hidden_layers"], 4)


def _windows(keys: FileKeys, num_layers: int, usual: int) -> dict[str, Any]:
    """Which layers have a sliding window: those that an array says, or all but every few."""
    name = keys.name("attention.sliding_window_pattern")
    pattern = keys.header.keys.get(name, usual)
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        every = keys.all.integer(name, usual, low=0, high=1 << 20)
        slides = [not every or (layer + 1) % every != 0 for layer in range(num_layers)]
    else:
        slides = keys.all.flags(name, num_layers)
    return {
        "layer_types": [_SLIDING if each else _FULL for each in slides],
        "sliding_window": keys.integer("attention.sliding_window", high=_MOST_POSITIONS),
    }


def _phi3(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    window = keys.integer("attention.sliding_window", 0, low=0, high=_MOST_POSITIONS)
    head_dim, positions = common["head_dim"], common["max_position_embeddings"]
    turning = keys.integer("rope.dimension_count", head_dim, high=head_dim)
    original = keys.integer(
        "rope.scaling.original_context_length", positions, low=2, high=_MOST_POSITIONS
    )
    return {
        "sliding_window": window or None,
        "partial_rotary_factor": turning / head_dim,
        "original_max_position_embeddings": original,
        "rope_scaling": _long_rope(keys, positions / original, original),
    }


def _long_rope(keys: FileKeys, factor: float, original: int) -> dict[str, Any] | None:
    if _LONG_FACTORS not in keys.header.tensors:
        return None
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    given = keys.number("rope.scaling.attn_factor", usual, low=0.0, high=1e6)
    if not math.isclose(given, usual, rel_tol=1e-4):
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name('rope.scaling.attn_factor')} {given:g} is not "
            f"supported; LongRoPE's is {usual:g} here"
        )
    return {
        "type": "longrope",
        "long_factor": read_vector(keys.header, _LONG_FACTORS),
        "short_factor": read_vector(keys.header, _SHORT_FACTORS),
    }


def _gemma3(keys: FileKeys, common: dict[str, Any]) -> dict[str, Any]:
    if keys.is_set("final_logit_softcapping"):
        raise UnsupportedError(
            f"{keys.all.source}: {keys.name('final_logit_softcapping')} is not supported"
        )
    layers, heads = common["num_hidden_layers"], common["num_attention_heads"]
    # Files do not say how scores are scaled; only the model of this many layers differs.
    is_largest = layers == 62
    found = {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": common["hidden_size"] / heads
        if is_largest
        else common["head_dim"],
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10000.0, low=1e-3, high=1e12),
    }
    if not keys.is_set("attention.sliding_window"):
        return {**found, "layer_types": [_FULL] * layers, "sliding_window": None}
    return {**found, **_windows(keys, layers, 6)}


_NORMS_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LLAMA = GgufFamily(
    "LlamaForCausalLM",
    permuted=True,
    variants={
        "expert_count": GgufFamily(
            "MixtralForCausalLM", permuted=True, settings=_mixtral, has_experts=True
        )
    },
)

# By general.architecture. Mistral's models are "llama" too, or "mistral3".
FAMILIES: dict[str, GgufFamily] = {
    "llama": _LLAMA,
    "mistral3": GgufFamily(
        "LlamaForCausalLM",
        permuted=True,
        variants={
            "attention.temperature_scale": GgufFamily(
                "Ministral3ForCausalLM", permuted=True, settings=_ministral3
            )
        },
    ),
    "qwen2": GgufFamily("Qwen2ForCausalLM"),
    "qwen3": GgufFamily("Qwen3ForCausalLM"),
    "qwen3moe": GgufFamily("Qwen3MoeForCausalLM", settings=_qwen3_moe, has_experts=True),
    "gemma3": GgufFamily(
        "Gemma3ForCausalLM",
        modules={**_NORMS_AFTER, "pre_feedforward_layernorm": "ffn_norm"},
        settings=_gemma3,
        is_wide=True,
    ),
    "phi3": GgufFamily(
        "Phi3ForCausalLM",
        modules={
            **dict.fromkeys((f"self_attn.{one}_proj" for one in "qkv"), "attn_qkv"),
            "mlp.gate_proj": "ffn_up",
        },
        vectors=frozenset({_LONG_FACTORS, _SHORT_FACTORS}),
        settings=_phi3,
        turns_in_part=True,
    ),
    "granite": GgufFamily("GraniteForCausalLM", permuted=True, settings=_granite),
    "smollm3": GgufFamily("SmolLM3ForCausalLM", permuted=True, settings=_smollm3),
    "olmo2": GgufFamily(
        "Olmo2ForCausalLM",
        modules=_NORMS_AFTER,
        variants={
            "attention.sliding_window": GgufFamily(
                "Olmo3ForCausalLM", modules=_NORMS_AFTER, settings=_olmo3
            )
        },
    ),
    "olmoe": GgufFamily("OlmoeForCausalLM", settings=_olmoe, has_experts=True),
}


def keys_of(header: GgufHeader) -> FileKeys:
    """Raises ConfigError."""
    keys = GgufKeys(header)
    return FileKeys(header, keys, keys.text(ARCHITECTURE_KEY))


def family_of(header: GgufHeader) -> GgufFamily:
    """Raises ConfigError, and UnsupportedError for an architecture that is not one of these."""
    keys = keys_of(header)
    family = FAMILIES.get(keys.prefix)
    if family is None:
        raise UnsupportedError(
            f"{header.path}: {ARCHITECTURE_KEY} {keys.prefix!r} is not supported as GGUF; "
            f"supported: {', '.join(FAMILIES)}; for others, serve the original checkpoint"
        )
    for key, variant in family.variants.items():
        if keys.is_set(key):
            return variant
    if keys.is_set("expert_count") and not family.has_experts:
        raise UnsupportedError(
            f"{header.path}: mixtures of experts of {ARCHITECTURE_KEY} {keys.prefix!r} are not "
            "supported as GGUF; serve the original checkpoint"
        )
    return family
