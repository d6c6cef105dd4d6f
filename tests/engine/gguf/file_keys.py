"""How llama.cpp's converter writes each family's keys."""

from __future__ import annotations

import math
from typing import Any

import gguf

from tests.engine.gguf.deepseek_files import add_deepseek, add_mixture_with_shared
from tests.engine.gguf.file_names import WRITTEN_AS
from tests.engine.gguf.gemma3n_files import add_gemma3n
from tests.engine.gguf.hybrid_files import (
    add_falcon_h1,
    add_granite,
    add_granite_hybrid,
    add_granite_moe,
    add_lfm2,
    add_nemotron_h,
)
from tests.engine.gguf.kimi_linear_files import add_kimi_linear
from tests.engine.gguf.mixture_files import (
    add_bailing,
    add_dots1,
    add_ernie_moe,
    add_exaone4,
    add_hunyuan_moe,
    add_minimax,
    add_partial_rope,
)
from tests.engine.gguf.qwen35_files import add_qwen35


def add_family(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Write the keys that other families than Llama have."""
    if (experts := config.get("num_local_experts") or config.get("num_experts")) is not None:
        writer.add_expert_count(experts)
        names = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk")
        writer.add_expert_used_count(next(config[name] for name in names if name in config))
    if (inner := config.get("moe_intermediate_size")) is not None:
        writer.add_expert_feed_forward_length(inner)
    if (add := _KEYS.get(config.get(WRITTEN_AS) or config["architectures"][0])) is not None:
        add(writer, config)


def _add_ministral3(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rope = config["rope_parameters"]
    writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def _add_cohere(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_logit_scale(config["logit_scale"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_dimension_count(config["head_dim"])


def _add_qwen2_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _add_glm4_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_partial_rope(writer, config)
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
    "Glm4ForCausalLM": add_partial_rope,
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
    "bailingmoe2": add_bailing,
    "KimiLinearForCausalLM": add_kimi_linear,
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
