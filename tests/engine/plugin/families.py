"""Tiny random checkpoints of decoders that transformers implements, and what it computes itself."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.codegen import modeling_codegen
from transformers.models.gptj import modeling_gptj

from engine.plugin.corrections import correct
from engine.plugin.rope import freeze_frequencies
from engine.plugin.shrinking import VOCABULARY, shrunk
from engine.plugin.trial import fill_strongly

# Kinds that are computed right: model types of transformers, or variants of them (VARIANTS).
# Each shows something that the others do not: norms after the sublayer; caps and windows; heads of
# two sizes with experts; sinks; latent attention; parallel blocks; learned positions with an
# offset.
FEW = (
    *("olmo2", "gemma2", "gemma4_text#moe", "gpt_oss", "deepseek_v3", "cohere2", "opt"),
    *("mixtral", "phi3#longrope"),
)
MANY = (
    *("afmoe", "apertus", "arcee", "axk1", "beam", "biogpt", "bitnet", "codegen", "cohere"),
    *("cohere2_moe", "ctrl", "deepseek_v2", "deepseek_v2#groups"),
    *("cwm", "dots1", "ernie4_5", "ernie4_5#biases", "ernie4_5_moe", "exaone4", "exaone_moe"),
    "ministral",
    *("falcon", "falcon#40b", "falcon#serial", "flex_olmo", "flint", "gemma", "gemma3_text"),
    "gemma3n_text",
    *(
        "gemma4_text",
        "gemma4_unified_text",
        "glm",
        "glm4",
        "glm4_moe",
        "glm4_moe_lite",
        "gpt2",
        "gpt_bigcode",
    ),
    *("gpt_neox", "gptj", "granite", "granite_swa", "granitemoe", "granitemoe_swa"),
    *("granitemoeshared", "helium", "hyperclovax"),
    *("hy_v3", "jais2", "kolibri1", "laguna", "llama", "llama#dynamic", "mellum", "mimo_v2_flash"),
    *("minicpm3", "minimax_m2", "ministral3", "mistral", "mistral#full", "modernbert-decoder"),
    *("nanochat", "olmo", "olmo3", "olmoe", "persimmon", "phi", "phi3", "phimoe", "qwen2"),
    *("phimoe#longrope", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3"),
    *("solar_open", "stablelm", "xglm", "gpt_neo", "aria_text", "apertus1p5_text", "lara_mini"),
    "minimax_m3_vl_text",
    *("hunyuan_v1_dense", "hunyuan_v1_moe", "nemotron"),
    *("starcoder2", "starcoder2#window", "vaultgemma", "youtu"),
)

# Kinds of which some layers keep a state instead of keys and values; the first two are enough for
# each run of the tests.
HYBRIDS = (
    *("qwen3_next", "lfm2", "qwen3_5_text", "qwen3_5_moe_text", "lfm2_moe", "lfm3", "bamba"),
    *("granitemoehybrid", "olmo_hybrid", "falcon_h1", "nemotron_h", "kimi_linear"),
    "bailing_hybrid",
)

# Kinds that our own code computes too, one or more of each family that is not a plain Llama.
NATIVE = (
    *("smollm3", "phi3#partial", "phi3#longrope", "granite#multipliers", "olmo2", "olmo3#yarn"),
    *("gemma3_text#linear", "gemma4_text#31b", "gemma4_text#e2b", "gemma4_text#moe"),
    *("gemma4_unified_text#12b", "ministral", "ministral3#short", "mixtral", "olmoe"),
    *("qwen3_moe", "qwen3_moe#renormalised"),
    *("llama4_text#scout", "llama4_text#maverick", "llama4_text#guard"),
)
# Those of them that transformers' code does not compute over our KV cache, and why.
ONLY_NATIVE = {"llama4_text": "layers of type chunked_attention"}

# Kinds of which GGUF files are served, by transformers' code.
GGUF_KINDS = (
    *("gpt_oss", "qwen3_5_text", "qwen3_5_text#heads", "qwen3_5_text#tied", "qwen3_5_moe_text"),
    *("qwen3_5_moe_text#heads", "qwen3_next", "qwen2_moe", "glm4", "seed_oss", "cohere"),
    *("cohere#norms", "cohere2#files", "gemma", "gemma2#files", "gemma3n_text#files"),
    *("glm4_moe", "glm4_moe#norms"),
    *("lfm2", "lfm2_moe", "granitemoe#multipliers", "granitemoeshared#shared"),
    *("granitemoehybrid", "granitemoehybrid#dense", "deepseek_v2#files", "deepseek_v3#files"),
    "deepseek_v3#queries",
    *("glm4_moe_lite#files", "ernie4_5_moe#files", "ernie4_5_moe#own", "exaone4#files"),
    *("exaone4#full", "hunyuan_v1_dense#files", "hunyuan_v1_moe#files", "minimax_m2#files"),
    *("dots1#files", "starcoder2#files", "apertus#files", "falcon_h1#files"),
    *("falcon_h1#norm", "nemotron_h#dense", "nemotron_h#files", "nemotron_h#latent"),
    *("kimi_linear#files", "glm4_moe#bailing"),
)

# The same kinds at published depths, the only ones at which llama.cpp reads them.
DEEP_GGUF_KINDS = ("deepseek_v2#lite", "gemma3n_text#e2b")

# Kinds of which our own code computes GGUF files, under other names than checkpoints.
NATIVE_GGUF_KINDS = ("ernie4_5", "ernie4_5#tall", "gpt2", "llama#internlm2")

# Kinds that are refused, and for what. Others are refused too.
REFUSED: dict[str, str] = {
    "minimax": "keeps more than keys and values",
    "deepseek_v32": "attends with indices, which is not supported",
    "inkling_text": "attends with position_bias, which is not supported",
    "diffllama": "its attention is called 8 times for 4 layers",
    "doge": "attends under a separate mask",
    **dict.fromkeys(("bart", "bloom", "mpt", "mvp", "rwkv"), "it takes no positions of tokens"),
    "bert": "an encoder, whose tokens attend to later ones",
    "jamba": "none of its layers attends through transformers' attention interface",
    "rembert": "none of its layers attends through transformers' attention interface",
}
_GRANITE_MULTIPLIERS = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
_YARN_OF_DEEPSEEK_V2 = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
_LLAMA4 = {
    "no_rope_layers": [1, 0, 1, 1],
    "layer_types": ["chunked_attention", "full_attention", *["chunked_attention"] * 2],
    "attn_scale": 0.5,
    "intermediate_size_mlp": 80,
}
# Variants that a family's own defaults do not show, by "model type#variant".
VARIANTS: dict[str, dict[str, Any]] = {
    "gemma4_text#moe": {
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "hidden_size_per_layer_input": 0,
    },
    "gemma4_text#31b": {
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 3.0,
        "attention_k_eq_v": True,
        "num_key_value_heads": 4,
        "per_layer_config": {layer: {"head_dim": 32, "num_key_value_heads": 2} for layer in (1, 3)},
    },
    "gemma4_unified_text#12b": {
        "final_logit_softcapping": 3.0,
        "attention_k_eq_v": True,
        "num_key_value_heads": 4,
        "per_layer_config": {layer: {"head_dim": 32, "num_key_value_heads": 1} for layer in (1, 3)},
    },
    "gemma4_text#e2b": {
        "hidden_size_per_layer_input": 16,
        "final_logit_softcapping": 3.0,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
    },
    "mistral#full": {"sliding_window": None},
    "glm4_moe#norms": {
        "use_qk_norm": True,
        "attention_bias": True,
        "routed_scaling_factor": 2.5,
        "n_shared_experts": 2,
    },
    "glm4_moe#bailing": {
        "written_as": "bailingmoe2",
        "use_qk_norm": True,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_group": 4,
        "topk_group": 2,
    },
    "llama#internlm2": {"written_as": "internlm2", "num_key_value_heads": 2},
    # As files say it: scores are scaled by the size of a head.
    "gemma2#files": {"query_pre_attn_scalar": 16, "head_dim": 16},
    "gemma3n_text#files": {
        "hidden_size_per_layer_input": 32,
        "laurel_rank": 32,
        "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.95],
    },
    # llama.cpp takes most of this for granted, and estimates deviations with one degree of freedom
    # less, which matters in narrow layers.
    "gemma3n_text#e2b": {
        "num_hidden_layers": 30,
        "intermediate_size": [2048] * 30,
        "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 6,
        "num_kv_shared_layers": 10,
        "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
        "hidden_size_per_layer_input": 256,
        "laurel_rank": 64,
    },
    "phi3#longrope": {
        "max_position_embeddings": 512,
        "original_max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
            "original_max_position_embeddings": 256,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0 + pair for pair in range(8)],
        },
    },
    "phimoe#longrope": {
        "sliding_window": 20,
        "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "original_max_position_embeddings": 256,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0 + pair for pair in range(8)],
            "short_mscale": 1.25,
            "long_mscale": 1.5,
        },
    },
    "phi3#partial": {
        "sliding_window": 20,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.75,
        },
    },
    "granite#multipliers": _GRANITE_MULTIPLIERS,
    "olmo3#yarn": {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 32,
            },
        },
    },
    "gemma3_text#linear": {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
        },
    },
    "ministral3#short": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 16,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.3,
        },
    },
    # Chunks that end within blocks of the KV cache, and at their ends.
    "llama4_text#scout": {
        **_LLAMA4,
        "attention_chunk_size": 13,
        "floor_scale": 5,
        "moe_layers": [0, 1, 2, 3],
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama4_text#maverick": {
        **_LLAMA4,
        "attention_chunk_size": 16,
        "floor_scale": 7,
        "moe_layers": [1, 3],
        "num_experts_per_tok": 2,
        "use_qk_norm": False,
        "attention_bias": True,
    },
    "llama4_text#guard": {
        **_LLAMA4,
        "attention_chunk_size": 5,
        "moe_layers": [],
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "attn_temperature_tuning": False,
        "tie_word_embeddings": True,
    },
    "qwen3_5_text#heads": {"linear_num_value_heads": 6},
    "qwen3_5_moe_text#heads": {"linear_num_value_heads": 6},
    "qwen3_5_text#tied": {"linear_num_value_heads": 2, "tie_word_embeddings": True},
    "qwen3_moe#renormalised": {"norm_topk_prob": True, "mlp_only_layers": [1]},
    "llama#dynamic": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 3.0},
    },
    "deepseek_v2#groups": {
        "q_lora_rank": None,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "rope_parameters": _YARN_OF_DEEPSEEK_V2,
    },
    # In GGUF files, rows of matrices are multiples of 32.
    "deepseek_v2#files": {
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 16.0,
        "rope_parameters": _YARN_OF_DEEPSEEK_V2,
    },
    "deepseek_v2#lite": {
        "num_hidden_layers": 27,
        "kv_lora_rank": 32,
        "q_lora_rank": None,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_group": 1,
        "topk_group": 1,
        "rope_parameters": _YARN_OF_DEEPSEEK_V2,
    },
    "deepseek_v3#files": {
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 1.8,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "deepseek_v3#queries": {
        "kv_lora_rank": 32,
        "q_lora_rank": None,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
    },
    "glm4_moe_lite#files": {
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
    },
    "kimi_linear#files": {
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "linear_head_dim": 32,
        "max_position_embeddings": 256,
    },
    "granitemoe#multipliers": _GRANITE_MULTIPLIERS,
    "granitemoeshared#shared": {**_GRANITE_MULTIPLIERS, "shared_intermediate_size": 64},
    "granitemoehybrid#dense": {
        **_GRANITE_MULTIPLIERS,
        "num_local_experts": 0,
        "mamba_n_groups": 2,
        "shared_intermediate_size": 96,
    },
    "cohere#norms": {"use_qk_norm": True, "num_key_value_heads": 2},
    "cohere2#files": {
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "num_key_value_heads": 2,
    },
    # The converter takes the size of the shared experts for that of a feed-forward network divided
    # by the heads of keys.
    "ernie4_5_moe#files": {"intermediate_size": 128, "num_hidden_layers": 4},
    "ernie4_5_moe#own": {"moe_num_shared_experts": 0, "tie_word_embeddings": False},
    "exaone4#files": {
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "num_key_value_heads": 2,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 1e6,
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "exaone4#full": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    "hunyuan_v1_dense#files": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "hunyuan_v1_moe#files": {"num_experts": 8, "moe_topk": 2, "num_key_value_heads": 2},
    "minimax_m2#files": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5e6,
            "partial_rotary_factor": 0.5,
        },
    },
    "dots1#files": {
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "n_shared_experts": 2,
        "sliding_window": None,
    },
    "apertus#files": {"num_key_value_heads": 2},
    "falcon_h1#files": {"mamba_n_groups": 2},
    "falcon_h1#norm": {
        "mamba_n_groups": 2,
        "mamba_rms_norm": True,
        "mamba_norm_before_gate": False,
    },
    "nemotron_h#dense": {
        "n_groups": 2,
        "head_dim": 32,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"],
    },
    "nemotron_h#files": {
        "n_groups": 2,
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
        "routed_scaling_factor": 2.5,
    },
    "nemotron_h#latent": {
        "layers_block_type": ["full_attention", "moe", "linear_attention", "moe"],
        "moe_latent_size": 32,
    },
    "falcon_h1#tied": {"tie_word_embeddings": True},
    "falcon_h1#multipliers": {
        "attention_in_multiplier": 0.9,
        "attention_out_multiplier": 0.8,
        "embedding_multiplier": 5.0,
        "key_multiplier": 0.7,
        "lm_head_multiplier": 0.4,
        "mlp_multipliers": [0.6, 1.7],
        "ssm_in_multiplier": 1.2,
        "ssm_multipliers": [0.5, 1.5, 0.8, 1.3, 1.1],
        "ssm_out_multiplier": 0.3,
    },
    "starcoder2#files": {"sliding_window": 4096},
    "falcon#40b": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon#serial": {"parallel_attn": False, "multi_query": False, "bias": True},
    "ernie4_5#biases": {"use_bias": True},
    "ernie4_5#tall": {"head_dim": 32, "tie_word_embeddings": False},
    "starcoder2#window": {"sliding_window": 6},
}


# What a family needs to be set before it can be shrunk, such as which layers are of which kind.
_LAYERS = 4
SHAPES: dict[str, dict[str, Any]] = {
    "dots1": {
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    "deepseek_v2": {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    "ministral": {
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": _LAYERS,
    },
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": _LAYERS},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention"] * 2,
        "num_hidden_layers": _LAYERS,
        "num_dense_layers": 1,
    },
    "bamba": {
        "attn_layer_indices": [1, 3],
        "num_hidden_layers": _LAYERS,
        "hidden_size": 64,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_expand": 2,
    },
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"] * 2,
        "num_hidden_layers": _LAYERS,
        "hidden_size": 64,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_expand": 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
}


def require_release_with(*kinds: str) -> None:
    """Skip a test where an older release of transformers lacks one of ``kinds``."""
    missing = {kind.partition("#")[0] for kind in kinds} - set(CONFIG_MAPPING.keys())
    if missing:
        pytest.skip(f"transformers {transformers.__version__} has no {', '.join(sorted(missing))}")
    for name, code in {"codegen": modeling_codegen, "gptj": modeling_gptj}.items():
        if name in kinds and not hasattr(code, "ALL_ATTENTION_FUNCTIONS"):
            version = transformers.__version__
            pytest.skip(f"{name} of transformers {version} computes attention in its own code")


def tiny_config(kind: str) -> Any:
    """``kind``: a model type, or one of VARIANTS."""
    family = kind.partition("#")[0]
    config = AutoConfig.for_model(family, **SHAPES.get(family, {}))
    config = shrunk(config.get_text_config())
    for name, value in VARIANTS.get(kind, {}).items():
        setattr(config, name, value)
    # Nothing may end a sequence early.
    config.eos_token_id = None
    return config


def save_family(
    kind: str, directory: Path, *, seed: int = 0, positions: int | None = None
) -> PreTrainedModel:
    """Write a checkpoint; return the model as transformers reads it, with its eager attention.
    ``positions``: the most tokens of a sequence; None: few."""
    torch.manual_seed(seed)
    config = tiny_config(kind)
    if positions is not None:
        config.max_position_embeddings = positions
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill_strongly(model)
    vary_buffers(model)
    model.save_pretrained(directory)
    oracle: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    freeze_frequencies(oracle, getattr(config, "max_position_embeddings", 0))
    correct(oracle, config)
    oracle.eval()
    return oracle


def vary_buffers(model: PreTrainedModel) -> None:
    """Layers' factors and routers' biases may not be parameters, and start as ones and zeros, which
    would hide that they count."""
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.uniform_(0.6, 1.4)
        if name.endswith("e_score_correction_bias"):
            buffer.uniform_(-0.3, 0.3)


def prompt(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(3, VOCABULARY), k=length)


@dataclass(frozen=True)
class Expected:
    """What transformers computes for a whole sequence: log-probabilities [tokens, vocabulary], and
    the range of its logits."""

    logprobs: Tensor
    span: float


def expected(oracle: PreTrainedModel, token_ids: list[int]) -> Expected:
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0].float()
    return Expected(logits.log_softmax(-1), float(logits.max() - logits.min()))
