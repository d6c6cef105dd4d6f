"""Tiny checkpoints of the families of which our own code computes GGUF files."""

from __future__ import annotations

from tests.engine.tiny_models import VOCABULARY, Variant

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_SLIDING_FULL = ["sliding_attention", "full_attention", "sliding_attention"]
# Rows are multiples of 32, so that every type of blocks can hold them.
_EVEN = {"intermediate_size": 96, "head_dim": 32}
_GEMMA4 = {
    "intermediate_size": 96,
    "tie_word_embeddings": True,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "sliding_window": 29,
    "head_dim": 32,
    "global_head_dim": 64,
    "final_logit_softcapping": 20.0,
}

FAMILY_FILES: dict[str, Variant] = {
    "llama": Variant("llama", _EVEN),
    "qwen3": Variant("qwen3", _EVEN),
    "mixtral": Variant("mixtral", _EVEN | {"num_local_experts": 4, "sliding_window": None}),
    "ministral3": Variant(
        "ministral3",
        _EVEN
        | {
            "rope_parameters": _YARN
            | {
                "rope_theta": 10_000.0,
                "llama_4_scaling_beta": 0.4,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "qwen3_moe": Variant(
        "qwen3_moe",
        _EVEN
        | {
            "moe_intermediate_size": 64,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
        },
    ),
    "gemma3": Variant(
        "gemma3",
        _EVEN
        | {
            "tie_word_embeddings": True,
            "num_hidden_layers": 7,
            "query_pre_attn_scalar": 32,
            "sliding_window": 29,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
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
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": VOCABULARY,
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
            "moe_intermediate_size": 64,
        },
    ),
    "phi3": Variant("phi3", {"intermediate_size": 96, "sliding_window": 29}),
    "phi3_partial": Variant(
        "phi3",
        {
            "intermediate_size": 96,
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.75,
            },
        },
    ),
    "phi3_long": Variant(
        "phi3",
        {
            "intermediate_size": 96,
            "sliding_window": None,
            "original_max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.0, 1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
            },
        },
    ),
    "granite": Variant(
        "granite",
        {
            "intermediate_size": 96,
            "attention_bias": True,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.22,
            "logits_scaling": 1.5,
        },
    ),
    "smollm3": Variant(
        "smollm3",
        {
            "intermediate_size": 96,
            "num_hidden_layers": 5,
            "no_rope_layers": None,
            "no_rope_layer_interval": 4,
        },
    ),
    "olmo2": Variant("olmo2", {"intermediate_size": 96}),
    "olmo3": Variant(
        "olmo3",
        {
            "intermediate_size": 96,
            "layer_types": _SLIDING_FULL,
            "sliding_window": 29,
            "rope_parameters": {
                "full_attention": _YARN | {"rope_theta": 500_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
            },
        },
    ),
    "olmoe": Variant(
        "olmoe",
        {
            "intermediate_size": 96,
            "num_key_value_heads": 4,
            "num_experts": 8,
            "num_experts_per_tok": 3,
        },
    ),
}
