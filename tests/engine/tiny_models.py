"""Tiny random-weight models of every family and variant, written by transformers itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from engine.plugin.rope import freeze_frequencies

VOCABULARY = 151
MAX_POSITIONS = 512

# Weights this large give decisive logits and text that wanders: a model initialised as for
# training loops on near-ties, where rounding decides.
_STD = 0.25

# Sizes are multiples of 16, so that the compiled path takes these models too.
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": _STD,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_FAMILIES: dict[str, tuple[type, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
    "phi3": (Phi3Config, Phi3ForCausalLM),
    "granite": (GraniteConfig, GraniteForCausalLM),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM),
    "olmo3": (Olmo3Config, Olmo3ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "gemma4": (Gemma4TextConfig, Gemma4ForCausalLM),
    "llama4": (Llama4TextConfig, Llama4ForCausalLM),
    "ministral": (MinistralConfig, MinistralForCausalLM),
    "ministral3": (Ministral3Config, Ministral3ForCausalLM),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
    "olmoe": (OlmoeConfig, OlmoeForCausalLM),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
}
_GPT2_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": MAX_POSITIONS,
    "initializer_range": _STD,
    "bos_token_id": None,
    "eos_token_id": None,
}

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.5}
_PARTIAL = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0] * 6,
    "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
}
_OF_FULL_LAYERS = {
    "full_attention": _YARN,
    "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
}
_SLIDING_AND_FULL = {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 29,
}

_GEMMA4 = {
    **_SLIDING_AND_FULL,
    **{"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    **{"head_dim": 16, "global_head_dim": 32, "final_logit_softcapping": 20.0},
}


@dataclass(frozen=True)
class Variant:
    """A configuration of one family, and how its directory departs from what transformers 5
    writes by default."""

    family: str
    settings: dict[str, Any] = field(default_factory=dict)
    edit_config: Callable[[dict[str, Any]], None] | None = None
    save: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32


def _old_rope(type_key: str) -> Callable[[dict[str, Any]], None]:
    """Rewrite config.json as transformers 4 did, with the scaling's kind under ``type_key``."""

    def edit(config: dict[str, Any]) -> None:
        scaling = config.pop("rope_parameters")
        config["rope_theta"] = scaling.pop("rope_theta")
        scaling[type_key] = scaling.pop("rope_type")
        config["rope_scaling"] = None if scaling == {type_key: "default"} else scaling
        config["torch_dtype"] = config.pop("dtype")

    return edit


_SLIDING = {"use_sliding_window": True, "sliding_window": 29}

VARIANTS: dict[str, Variant] = {
    "llama": Variant("llama"),
    "llama_tied": Variant("llama", {"tie_word_embeddings": True}),
    "llama_biases": Variant("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_multi_query": Variant("llama", {"num_key_value_heads": 1, "head_dim": 32}),
    "llama_old_config": Variant("llama", edit_config=_old_rope("rope_type")),
    "llama3_rope": Variant("llama", {"rope_parameters": _LLAMA3}),
    "llama3_rope_old_config": Variant(
        "llama", {"rope_parameters": _LLAMA3}, edit_config=_old_rope("rope_type")
    ),
    "llama_linear_rope": Variant("llama", {"rope_parameters": _LINEAR}),
    "llama_linear_rope_old_config": Variant(
        "llama", {"rope_parameters": _LINEAR}, edit_config=_old_rope("type")
    ),
    "llama_yarn": Variant("llama", {"rope_parameters": _YARN}),
    "qwen2_yarn_old_config": Variant(
        "qwen2", {"rope_parameters": _YARN}, edit_config=_old_rope("type")
    ),
    "llama_yarn_mscale": Variant(
        "llama",
        {
            "rope_parameters": _YARN
            | {"mscale": 0.8, "mscale_all_dim": 0.4, "beta_fast": 16, "truncate": False}
        },
    ),
    "llama_sharded": Variant("llama", save={"max_shard_size": "60KB"}),
    "llama_bfloat16_checkpoint": Variant("llama", dtype=torch.bfloat16),
    "mistral": Variant("mistral", {"sliding_window": None}),
    "mistral_sliding_window": Variant("mistral", {"sliding_window": 29}),
    "qwen2": Variant("qwen2"),
    "qwen2_sliding_upper_layers": Variant("qwen2", _SLIDING | {"max_window_layers": 1}),
    "qwen3": Variant("qwen3", {"head_dim": 32}),
    "qwen3_tied_biases": Variant(
        "qwen3", {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True}
    ),
    "qwen3_layer_types": Variant(
        "qwen3",
        _SLIDING
        | {
            "head_dim": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "smollm3": Variant("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "phi3_partial": Variant("phi3", {"rope_parameters": _PARTIAL, "sliding_window": 29}),
    "phi3_long": Variant(
        "phi3", {"rope_parameters": _LONG, "original_max_position_embeddings": 256}
    ),
    "granite": Variant(
        "granite",
        {
            "attention_bias": True,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.22,
            "logits_scaling": 1.5,
        },
    ),
    "olmo2": Variant("olmo2"),
    "olmo3": Variant("olmo3", _SLIDING_AND_FULL | {"rope_parameters": _OF_FULL_LAYERS}),
    "gemma3": Variant("gemma3", _SLIDING_AND_FULL | {"head_dim": 32, "query_pre_attn_scalar": 24}),
    # Of the sizes of 31B, E2B and 26B-A4B, in small.
    "gemma4": Variant(
        "gemma4",
        _GEMMA4
        | {
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "gemma4_inputs": Variant(
        "gemma4",
        _GEMMA4
        | {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": VOCABULARY + 3,
        },
    ),
    "gemma4_experts": Variant(
        "gemma4",
        _GEMMA4
        | {
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 3,
            "moe_intermediate_size": 48,
        },
    ),
    "llama4": Variant(
        "llama4",
        {
            "head_dim": 16,
            "intermediate_size_mlp": 112,
            "moe_layers": [0, 2],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "no_rope_layers": [1, 0, 1],
            "attention_chunk_size": 29,
            "floor_scale": 20,
            "attn_scale": 0.3,
            "rope_parameters": _LLAMA3,
        },
    ),
    "ministral": Variant("ministral", _SLIDING_AND_FULL | {"head_dim": 16}),
    "ministral3": Variant(
        "ministral3",
        {
            "head_dim": 16,
            "rope_parameters": _YARN
            | {
                "llama_4_scaling_beta": 0.4,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "mixtral": Variant("mixtral", {"num_local_experts": 4, "sliding_window": 29}),
    "olmoe": Variant("olmoe", {"num_experts": 8, "num_experts_per_tok": 3}),
    "qwen3_moe": Variant(
        "qwen3_moe",
        {
            "head_dim": 32,
            "moe_intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "gpt2": Variant("gpt2"),
    "gpt2_scaled_by_depth": Variant(
        "gpt2", {"scale_attn_by_inverse_layer_idx": True, "n_inner": 100}
    ),
}


def save_model(variant: Variant, directory: Path, *, seed: int = 0) -> PreTrainedModel:
    """Write the variant's directory; what transformers reads from it, in float32, is the oracle."""
    config_class, model_class = _FAMILIES[variant.family]
    sizes = _GPT2_SIZES if variant.family == "gpt2" else _SIZES
    config = config_class(**(sizes | variant.settings))
    torch.manual_seed(seed)
    model: Any = model_class(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms start as ones and biases as zeros, which would hide that they are used.
            if parameter.dim() == 1:
                spread = torch.randn_like(parameter) * 0.1
                parameter.copy_(spread if name.endswith("bias") else 1 + spread)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):  # so do these
                buffer.uniform_(0.6, 1.4)
    model.to(variant.dtype).save_pretrained(directory, **variant.save)
    if variant.edit_config is not None:
        path = directory / "config.json"
        values = json.loads(path.read_text())
        variant.edit_config(values)
        path.write_text(json.dumps(values))
    oracle: Any = model_class.from_pretrained(directory, dtype=torch.float32)
    freeze_frequencies(oracle, config.max_position_embeddings)
    found: PreTrainedModel = oracle.eval()
    return found
