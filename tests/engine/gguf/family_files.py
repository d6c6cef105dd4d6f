"""How llama.cpp's converter writes each family: keys and tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import gguf
import torch
from gguf.tensor_mapping import get_tensor_name_map
from torch import Tensor

from engine.architecture.rotary import pair_order
from engine.gguf.names import ROPE_FACTORS
from tests.engine.gguf.deepseek_files import (
    add_deepseek,
    add_mixture_with_shared,
    deepseek_tensors,
)
from tests.engine.gguf.gemma3n_files import add_gemma3n, gemma3n_tensors
from tests.engine.gguf.hybrid_files import (
    add_falcon_h1,
    add_granite,
    add_granite_hybrid,
    add_granite_moe,
    add_lfm2,
    add_nemotron_h,
    falcon_h1_tensors,
    granite_tensors,
    lfm2_tensors,
    nemotron_h_tensors,
)
from tests.engine.gguf.mixture_files import (
    add_dots1,
    add_ernie_moe,
    add_exaone4,
    add_hunyuan_moe,
    add_minimax,
    apertus_tensors,
    llama3_factors,
)
from tests.engine.gguf.qwen35_files import (
    FUSES_EXPERTS,
    add_qwen35,
    as_in_file,
    fused_experts,
    predictor_name,
    qwen3_next_tensors,
)
from tests.engine.tiny_models import VOCABULARY, Variant

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Ministral3ForCausalLM": "mistral3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "CohereForCausalLM": "command-r",
    "Cohere2ForCausalLM": "cohere2",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4moe",
    "SeedOssForCausalLM": "seed_oss",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3nForCausalLM": "gemma3n",
    "Gemma4ForCausalLM": "gemma4",
    "GptOssForCausalLM": "gpt-oss",
    "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
    "Phi3ForCausalLM": "phi3",
    "DeepseekV2ForCausalLM": "deepseek2",
    "DeepseekV3ForCausalLM": "deepseek2",
    "Glm4MoeLiteForCausalLM": "deepseek2",
    "GraniteMoeForCausalLM": "granitemoe",
    "GraniteMoeSharedForCausalLM": "granitemoe",
    "GraniteMoeHybridForCausalLM": "granitehybrid",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2moe",
    "GraniteForCausalLM": "granite",
    "SmolLM3ForCausalLM": "smollm3",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "OlmoeForCausalLM": "olmoe",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5-moe",
    "Exaone4ForCausalLM": "exaone4",
    "HunYuanDenseV1ForCausalLM": "hunyuan-dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan-moe",
    "MiniMaxM2ForCausalLM": "minimax-m2",
    "Dots1ForCausalLM": "dots1",
    "Starcoder2ForCausalLM": "starcoder2",
    "ApertusForCausalLM": "apertus",
    "FalconH1ForCausalLM": "falcon-h1",
    "NemotronHForCausalLM": "nemotron_h",
}
_OFFSET_NORMS = {"gemma", "gemma2", "gemma3"}
_PERMUTED = {"llama", "mistral3", "granite", "granitemoe", "granitehybrid", "smollm3"}
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.(.*)")
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


def in_hub_layout(config: dict[str, Any]) -> dict[str, Any]:
    """Return config.json as models on the hub have it, from which llama.cpp's converter reads;
    newer transformers name Gemma 4's layers with full attention one by one."""
    of_layers = (config.get("per_layer_config") or {}).values()
    full: dict[str, Any] = next(iter(of_layers), {})
    found = {"num_global_key_value_heads": full.get("num_key_value_heads")} if full else {}
    if "head_dim" in full:
        found["global_head_dim"] = full["head_dim"]
    if config.get("head_dim") is None:
        found["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    return config | found


def architecture_of(config: dict[str, Any]) -> str:
    """Return the name of the architecture in the file."""
    name = ARCHITECTURES[config["architectures"][0]]
    return f"{name}_moe" if "moe" in config.get("layers_block_type", ()) else name


def count_layers(config: dict[str, Any]) -> int:
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def add_family(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Write the keys that other families than Llama have."""
    if (experts := config.get("num_local_experts") or config.get("num_experts")) is not None:
        writer.add_expert_count(experts)
        names = ("num_experts_per_tok", "top_k_experts", "moe_topk")
        writer.add_expert_used_count(next(config[name] for name in names if name in config))
    if (inner := config.get("moe_intermediate_size")) is not None:
        writer.add_expert_feed_forward_length(inner)
    if (add := _KEYS.get(config["architectures"][0])) is not None:
        add(writer, config)


def _add_ministral3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def _add_partial_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    turning = config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(turning))


def _add_cohere(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_logit_scale(config["logit_scale"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_dimension_count(config["head_dim"])


def _add_qwen2_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _add_glm4_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    _add_partial_rope(writer, config)
    add_mixture_with_shared(writer, config)


def _add_gemma2(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])


def _add_gemma3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])


def _add_gemma4(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    shared = config["num_kv_shared_layers"]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    for add, size in (
        (writer.add_key_length, config["global_head_dim"]),
        (writer.add_value_length, config["global_head_dim"]),
        (writer.add_key_length_swa, config["head_dim"]),
        (writer.add_value_length_swa, config["head_dim"]),
        (writer.add_rope_dimension_count, config["global_head_dim"]),
        (writer.add_rope_dimension_count_swa, config["head_dim"]),
    ):
        add(size)
    if config["use_double_wide_mlp"]:
        wide = len(slides) - shared
        inner = config["intermediate_size"]
        writer.add_feed_forward_length(
            [inner if layer < wide else 2 * inner for layer in range(len(slides))]
        )
    if (of_full := config.get("num_global_key_value_heads")) is not None:
        writer.add_head_count_kv(
            [config["num_key_value_heads"] if slide else of_full for slide in slides]
        )


def _add_gpt_oss(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _add_phi3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1.0) * head_dim))
    writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
    writer.add_sliding_window(config["sliding_window"] or 0)
    if "long_factor" in rope:
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        factor = math.sqrt(1 + math.log(scale) / math.log(original))
        writer.add_rope_scaling_attn_factors(factor)


def _add_olmo3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])


_KEYS = {
    "Ministral3ForCausalLM": _add_ministral3,
    "CohereForCausalLM": _add_cohere,
    "Cohere2ForCausalLM": _add_cohere,
    "Glm4ForCausalLM": _add_partial_rope,
    "Glm4MoeForCausalLM": _add_glm4_moe,
    "Qwen2MoeForCausalLM": _add_qwen2_moe,
    "Gemma2ForCausalLM": _add_gemma2,
    "Gemma3ForCausalLM": _add_gemma3,
    "Gemma3nForCausalLM": add_gemma3n,
    "Gemma4ForCausalLM": _add_gemma4,
    "GptOssForCausalLM": _add_gpt_oss,
    "Qwen3NextForCausalLM": add_qwen35,
    "Qwen3_5ForCausalLM": add_qwen35,
    "Qwen3_5MoeForCausalLM": add_qwen35,
    "Phi3ForCausalLM": _add_phi3,
    "DeepseekV2ForCausalLM": add_deepseek,
    "DeepseekV3ForCausalLM": add_deepseek,
    "Glm4MoeLiteForCausalLM": add_deepseek,
    "GraniteForCausalLM": add_granite,
    "GraniteMoeForCausalLM": add_granite_moe,
    "GraniteMoeSharedForCausalLM": add_granite_moe,
    "GraniteMoeHybridForCausalLM": add_granite_hybrid,
    "Lfm2ForCausalLM": add_lfm2,
    "Lfm2MoeForCausalLM": add_lfm2,
    "Olmo3ForCausalLM": _add_olmo3,
    "Ernie4_5_MoeForCausalLM": add_ernie_moe,
    "Exaone4ForCausalLM": add_exaone4,
    "HunYuanMoEV1ForCausalLM": add_hunyuan_moe,
    "MiniMaxM2ForCausalLM": add_minimax,
    "Dots1ForCausalLM": add_dots1,
    "FalconH1ForCausalLM": add_falcon_h1,
    "NemotronHForCausalLM": add_nemotron_h,
}


def file_tensors(
    tensors: dict[str, Tensor], config: dict[str, Any]
) -> Iterator[tuple[str, str, Tensor]]:
    """Yield a checkpoint's tensors by their names there, and by those in the file, as they are
    there in float32."""
    architecture = architecture_of(config)
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(numbers[architecture], count_layers(config))
    stacks: dict[str, dict[int, Tensor]] = {}
    if (change := _CHANGES.get(architecture)) is not None:
        tensors = change(tensors, config)
    for name, tensor in tensors.items():
        values = tensor.float()
        if name.startswith("mtp."):
            yield name, predictor_name(name, config["num_hidden_layers"]), values
            continue
        if match := _EXPERT.fullmatch(name):
            prefix, number, rest = match.groups()
            stacks.setdefault(prefix + rest, {})[int(number)] = values
            continue
        if architecture in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            heads = values.view(-1, config["head_dim"], *values.shape[1:])
            values = heads[:, pair_order(config["head_dim"])].reshape(values.shape)
        if architecture.startswith("qwen35"):
            values = as_in_file(name, values, config)
        if architecture in _OFFSET_NORMS and name.endswith("norm.weight"):
            values = values + 1
        if values.dim() == 3 and not name.endswith(".weight"):  # Gemma 4's experts
            name += ".weight"
        yield name, _named(names, name), values
    stacked = {
        name: torch.stack([experts[i] for i in range(len(experts))])
        for name, experts in stacks.items()
    }
    if config.get(FUSES_EXPERTS):
        stacked = fused_experts(stacked)
    for name, values in stacked.items():
        yield name, _named(names, name), values
    yield from _rope_factors(config)


def _rope_factors(config: dict[str, Any]) -> Iterator[tuple[str, str, Tensor]]:
    rope = config.get("rope_parameters") or {}
    if ARCHITECTURES[config["architectures"][0]] == "gemma4":
        pairs = config["global_head_dim"] // 2
        turning = int(pairs * rope["full_attention"]["partial_rotary_factor"])
        values = [1.0] * turning + [1e30] * (pairs - turning)
        yield ROPE_FACTORS, ROPE_FACTORS, torch.tensor(values)
    if rope.get("rope_type") == "llama3":
        yield ROPE_FACTORS, ROPE_FACTORS, llama3_factors(rope, config["head_dim"])
    for kind in ("long", "short"):
        if (factors := rope.get(f"{kind}_factor")) is not None:
            stored = f"rope_factors_{kind}.weight"
            yield stored, stored, torch.tensor(factors, dtype=torch.float32)


def _divided_experts(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """gpt-oss has the outputs of gate and up in turn, and experts' matrices transposed."""
    found = {}
    for name, tensor in tensors.items():
        if ".mlp.experts." not in name:
            found[name] = tensor
            continue
        ending = "bias" if name.endswith("_bias") else "weight"
        values = tensor if ending == "bias" else tensor.transpose(1, 2)
        stem = name.removesuffix("_bias")
        if stem.endswith("down_proj"):
            found[f"{stem}.{ending}"] = values
            continue
        for first, projection in enumerate(("gate", "up")):
            own = stem.replace("gate_up_proj", f"{projection}_proj")
            found[f"{own}.{ending}"] = values[:, first::2].contiguous()
    return found


_CHANGES = {
    "apertus": apertus_tensors,
    "falcon-h1": falcon_h1_tensors,
    "deepseek2": deepseek_tensors,
    "gemma3n": gemma3n_tensors,
    "gpt-oss": _divided_experts,
    "granitehybrid": granite_tensors,
    "granitemoe": granite_tensors,
    "lfm2": lfm2_tensors,
    "lfm2moe": lfm2_tensors,
    "nemotron_h": nemotron_h_tensors,
    "nemotron_h_moe": nemotron_h_tensors,
    "qwen3next": qwen3_next_tensors,
}
_UNMAPPED = {
    "router.scale": "ffn_gate_inp.scale",
    "e_score_correction_bias": "exp_probs_b.bias",
    "router.per_expert_scale": "ffn_down_exps.scale",
}


def _named(names: gguf.TensorNameMap, name: str) -> str:
    if name.startswith("blk."):
        return name
    for ending, stored in _UNMAPPED.items():
        if name.endswith(ending):
            return f"blk.{name.split('.')[2]}.{stored}"
    if name.endswith(".dt_bias"):
        name = name.replace(".dt_bias", ".dt_proj.bias")
    if name.endswith((".layer_scalar", ".sinks")):
        name += ".weight"
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found
