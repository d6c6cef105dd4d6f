"""What the keys of each architecture's GGUF files mean in config.json: the fields besides those
that all families have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.keys import MAX_EXPERTS, MAX_POSITIONS, MAX_SIZE, ArchitectureKeys
from engine.gguf.names import ROUTER, gguf_name
from engine.gguf.vectors import read_vector

LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
SOFTMAX, SIGMOID = 1, 2  # of expert_gating_func
SLIDING, FULL = "sliding_attention", "full_attention"

FamilyReader = Callable[[ArchitectureKeys, dict[str, Any]], dict[str, Any]]
"""Returns the fields, given the file's keys and the fields that all families have."""

ParameterReader = Callable[[ArchitectureKeys], dict[str, float]]
"""Returns parameters that are keys of the file, not tensors, by name."""


def no_parameters(keys: ArchitectureKeys) -> dict[str, float]:
    return {}


def nothing(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {}


def experts(
    keys: ArchitectureKeys, common: dict[str, Any], inner: str, *, grouped: bool = False
) -> dict[str, Any]:
    """``inner``: the key of an expert's size. ``grouped``: the router may choose groups first."""
    if not grouped and keys.is_set("expert_group_count"):
        must_be(keys, "expert_group_count", 1)
    most = max(1, min(4096, MAX_EXPERTS // common["num_hidden_layers"]))
    count = keys.integer("expert_count", high=most)
    for name, router in keys.header.tensors.items():
        if ROUTER in name and name.endswith(".weight") and router.shape[0] != count:
            raise keys.unsupported("expert_count", f"is {count}, and {name} has {router.shape[0]}")
    return {
        "num_experts": count,
        "num_experts_per_tok": keys.integer("expert_used_count", high=count),
        "moe_intermediate_size": keys.integer(inner, high=MAX_SIZE),
    }


def layers_without_mtp(keys: ArchitectureKeys, common: dict[str, Any]) -> int:
    """Return the number of layers, not counting those of multi-token prediction (nextn)."""
    layers: int = common["num_hidden_layers"]
    return layers - keys.integer("nextn_predict_layers", 0, low=0, high=layers - 1)


def must_be(keys: ArchitectureKeys, key: str, value: int) -> None:
    """Raise UnsupportedError if ``key`` is given and is another number."""
    found = keys.integer(key, value, low=0, high=MAX_POSITIONS)
    if found != value:
        raise keys.unsupported(key, f"is {found}; only {value} is supported")


def sigmoid_router(keys: ArchitectureKeys) -> None:
    """Raise UnsupportedError if experts are chosen by another function than the sigmoid."""
    must_be(keys, "expert_gating_func", SIGMOID)


def plain_router(keys: ArchitectureKeys, function: int) -> None:
    """Raise UnsupportedError if experts are chosen by another ``function``, or unless the weights
    of the chosen ones sum to 1."""
    must_be(keys, "expert_gating_func", function)
    if not keys.file.flag(keys.name("expert_weights_norm"), True):
        raise keys.unsupported("expert_weights_norm", "false is not supported; it must be true")
    if keys.number("expert_weights_scale", 1.0, low=0.0, high=1e6) not in (0.0, 1.0):
        raise keys.unsupported("expert_weights_scale", "is not supported; it must be 1")


def mixture_with_shared(
    keys: ArchitectureKeys, common: dict[str, Any], layers: int
) -> dict[str, Any]:
    """Return the fields of a mixture as DeepSeek V3's: shared experts, which process every token,
    and dense layers first. ``layers``: without those of multi-token prediction."""
    found = experts(keys, common, "expert_feed_forward_length", grouped=True)
    groups, used_groups = _groups(keys, found)
    return {
        "first_k_dense_replace": keys.integer("leading_dense_block_count", 0, low=0, high=layers),
        "n_routed_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
        "moe_intermediate_size": found["moe_intermediate_size"],
        "n_shared_experts": keys.integer("expert_shared_count", high=64),
        **expert_weights(keys),
        "n_group": groups,
        "topk_group": used_groups,
    }


def expert_weights(keys: ArchitectureKeys) -> dict[str, Any]:
    """Return what is done to the weights of the chosen experts."""
    return {
        # 0 means that it is not set.
        "routed_scaling_factor": keys.number("expert_weights_scale", 0.0, low=0.0, high=1e6) or 1.0,
        "norm_topk_prob": keys.file.flag(keys.name("expert_weights_norm"), False),
    }


def _groups(keys: ArchitectureKeys, mixture: dict[str, Any]) -> tuple[int, int]:
    """Return how many groups of experts there are, and of how many of them experts are chosen."""
    count, used = mixture["num_experts"], mixture["num_experts_per_tok"]
    groups = keys.integer("expert_group_count", 0, low=0, high=count) or 1
    used_groups = keys.integer("expert_group_used_count", 0, low=0, high=groups) or groups
    # A group's score is the sum of its two best experts'.
    if groups > 1 and (count % groups or count // groups < 2):
        raise keys.unsupported(
            "expert_group_count", f"{groups} must divide {count} experts into groups of two or more"
        )
    most = used_groups * (count // groups)
    if used > most:
        raise keys.unsupported("expert_used_count", f"is {used}, and the used groups have {most}")
    return groups, used_groups


def plain_rope(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Raises UnsupportedError if rotary embeddings are scaled."""
    refuse_scaling(keys, common)
    return rope_parameters(None, common["rope_theta"])


def llama3_rope(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Raises UnsupportedError if rotary embeddings are scaled otherwise than Llama 3's."""
    scaling = common["rope_scaling"]
    if scaling is None or scaling["rope_type"] != "llama3":
        return plain_rope(keys, common)
    return rope_parameters(scaling, common["rope_theta"])


def rope_parameters(scaling: dict[str, Any] | None, base: float, **more: Any) -> dict[str, Any]:
    """Return transformers' rope_parameters, and None for rope_scaling, which they replace."""
    parameters = {**(scaling or {"rope_type": "default"}), "rope_theta": base, **more}
    return {"rope_scaling": None, "rope_parameters": parameters}


def has_parameter(keys: ArchitectureKeys, name: str) -> bool:
    """``name``: as in a checkpoint of a Llama-like decoder."""
    return gguf_name(name) in keys.header.tensors


def partial_rope(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Return rope_parameters of models of which a part of each head may turn."""
    head_dim = common["head_dim"]
    turning = keys.integer("rope.dimension_count", head_dim, low=2, high=head_dim)
    if turning % 2:
        raise keys.file.error(keys.name("rope.dimension_count"), "an even number", turning)
    scaling, base = common["rope_scaling"], common["rope_theta"]
    return rope_parameters(scaling, base, partial_rotary_factor=turning / head_dim)


def refuse_scaling(keys: ArchitectureKeys, common: dict[str, Any]) -> None:
    """Raise UnsupportedError if rotary embeddings are scaled."""
    if common["rope_scaling"] is not None:
        kind = common["rope_scaling"]["rope_type"]
        raise keys.unsupported("rope.scaling.type", f"{kind!r} is not supported")


def mixtral(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {**local_experts(keys, common), "sliding_window": None}


def local_experts(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Of models whose feed-forward is an expert's."""
    found = experts(keys, common, "feed_forward_length")
    return {
        "num_local_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
    }


def olmoe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = experts(keys, common, "feed_forward_length")
    del found["moe_intermediate_size"]  # it is the feed-forward's
    return {**found, "norm_topk_prob": False}


def qwen3_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {**experts(keys, common, "expert_feed_forward_length"), "norm_topk_prob": True}


def qwen2_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    found = experts(keys, common, "expert_feed_forward_length")
    return {
        **found,
        "model_type": "qwen2_moe",
        "shared_expert_intermediate_size": shared_size(keys, found["moe_intermediate_size"]),
        "norm_topk_prob": False,
        "qkv_bias": common["attention_bias"],
        **plain_rope(keys, common),
    }


def shared_size(keys: ArchitectureKeys, usual: int) -> int:
    """Return the size of the expert that sees all tokens."""
    return keys.integer("expert_shared_feed_forward_length", usual, high=MAX_SIZE)


def seed_oss(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "seed_oss",
        "attention_out_bias": has_parameter(keys, "model.layers.0.self_attn.o_proj.bias"),
        **rope_parameters(common["rope_scaling"], common["rope_theta"]),
    }


def gpt_oss(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Every other layer has a sliding window. YaRN's ramp is not rounded to whole dimensions."""
    scaling = common["rope_scaling"] or {"rope_type": "default"}
    truncation = {"truncate": False} if scaling["rope_type"] == "yarn" else {}
    found = experts(keys, common, "expert_feed_forward_length")
    base = common["rope_theta"]
    one_base(keys, base)
    return {
        "model_type": "gpt_oss",
        "num_local_experts": found["num_experts"],
        "num_experts_per_tok": found["num_experts_per_tok"],
        "intermediate_size": found["moe_intermediate_size"],
        **window_fields(keys, common["num_hidden_layers"], 2),
        **rope_parameters(scaling, base, **truncation),
    }


def one_base(keys: ArchitectureKeys, base: float) -> None:
    """Raise UnsupportedError if layers with a sliding window have another base."""
    if keys.number("rope.freq_base_swa", base, low=1e-3, high=1e12) != base:
        raise keys.unsupported("rope.freq_base_swa", f"must be that of all layers, {base:g}")


def mistral3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {"rope_scaling": _mistral_scaling(keys, common)}


def ministral3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Queries are scaled by position."""
    scaling = _mistral_scaling(keys, common)
    if scaling is None or scaling["rope_type"] != "yarn":
        raise UnsupportedError(f"{keys.file.source}: {keys.prefix} without YaRN is not supported")
    beta = keys.number("attention.temperature_scale", low=0.0, high=1e3)
    return {
        **rope_parameters(scaling, common["rope_theta"], llama_4_scaling_beta=beta),
        "sliding_window": None,
    }


def _mistral_scaling(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any] | None:
    """The temperature of YaRN is divided by another."""
    scaling: dict[str, Any] | None = common["rope_scaling"]
    if scaling is None or scaling["rope_type"] != "yarn":
        return scaling
    divisor = keys.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0, high=1e3)
    return {**scaling, "mscale": 1.0, "mscale_all_dim": divisor}


def smollm3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Files do not say which layers have no rotary embeddings: every fourth."""
    return {"no_rope_layer_interval": 4}


def olmo3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return window_fields(keys, common["num_hidden_layers"], 4)


def window_fields(keys: ArchitectureKeys, num_layers: int, period: int) -> dict[str, Any]:
    """Return layer_types and sliding_window. The file's pattern is an array with one flag for each
    layer, or a period: every so many layers one has full attention, and with 0 none has.
    ``period``: if the file has neither."""
    name = keys.name("attention.sliding_window_pattern")
    pattern = keys.header.keys.get(name, period)
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        every = keys.file.integer(name, period, low=0, high=1 << 20)
        slides = [not every or (layer + 1) % every != 0 for layer in range(num_layers)]
    else:
        slides = keys.file.flags(name, num_layers)
    return {
        "layer_types": [SLIDING if each else FULL for each in slides],
        "sliding_window": keys.integer("attention.sliding_window", high=MAX_POSITIONS),
    }


def phi3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    refuse_scaling(keys, common)
    window = keys.integer("attention.sliding_window", 0, low=0, high=MAX_POSITIONS)
    head_dim, positions = common["head_dim"], common["max_position_embeddings"]
    turning = keys.integer("rope.dimension_count", head_dim, high=head_dim)
    original = keys.integer(
        "rope.scaling.original_context_length", positions, low=2, high=MAX_POSITIONS
    )
    return {
        "sliding_window": window or None,
        "partial_rotary_factor": turning / head_dim,
        "original_max_position_embeddings": original,
        "rope_scaling": _long_rope(keys, turning // 2, positions / original, original),
    }


def _long_rope(
    keys: ArchitectureKeys, pairs: int, factor: float, original: int
) -> dict[str, Any] | None:
    """``pairs``: of a head that turn. ``factor``: by which the context is longer than the
    ``original``."""
    if not keys.header.tensors.keys() & {LONG_FACTORS, SHORT_FACTORS}:
        if keys.file.text(keys.name("rope.scaling.type"), "none") == "longrope":
            raise ConfigError(f"{keys.file.source} has no {LONG_FACTORS}")
        return None
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    given = keys.number("rope.scaling.attn_factor", usual, low=0.0, high=1e6)
    if not math.isclose(given, usual, rel_tol=1e-4):
        raise keys.unsupported(
            "rope.scaling.attn_factor",
            f"{given:g} is not supported; LongRoPE's is {usual:g} here",
        )
    return {
        "type": "longrope",
        "long_factor": read_vector(keys.header, LONG_FACTORS, pairs),
        "short_factor": read_vector(keys.header, SHORT_FACTORS, pairs),
    }


def gemma(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    refuse_scaling(keys, common)
    activation = "gelu_pytorch_tanh"
    return {"model_type": "gemma", "hidden_act": activation, "hidden_activation": activation}


def gemma2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Every other layer has a sliding window, beginning with the first."""
    refuse_scaling(keys, common)
    one_base(keys, common["rope_theta"])
    layers = common["num_hidden_layers"]
    # Files do not say how scores are scaled; only the model of this many layers differs.
    is_largest = layers == 46
    per_head = common["hidden_size"] / common["num_attention_heads"]
    return {
        "model_type": "gemma2",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": per_head if is_largest else common["head_dim"],
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0, low=1e-3, high=1e6),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0, low=1e-3, high=1e6),
        **window_fields(keys, layers, 2),
    }


def gemma3(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    if keys.is_set("final_logit_softcapping"):
        raise keys.unsupported("final_logit_softcapping", "is not supported")
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
        return {**found, "layer_types": [FULL] * layers, "sliding_window": None}
    return {**found, **window_fields(keys, layers, 6)}
