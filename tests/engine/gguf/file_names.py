"""What llama.cpp's converter calls architectures and tensors."""

from __future__ import annotations

from typing import Any

import gguf

WRITTEN_AS = "written_as"
"""A field of config.json for these writers only: the architecture in the file, for models that
transformers does not have under their names."""

ARCHITECTURES = {
    "GPT2LMHeadModel": "gpt2",
    "KimiLinearForCausalLM": "kimi-linear",
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
_GPT2_FIELDS = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "num_key_value_heads": "n_head",
    "layer_norm_eps": "layer_norm_epsilon",
}
_UNMAPPED = {
    "router.scale": "ffn_gate_inp.scale",
    "e_score_correction_bias": "exp_probs_b.bias",
    "router.per_expert_scale": "ffn_down_exps.scale",
}


def in_hub_layout(config: dict[str, Any]) -> dict[str, Any]:
    """Return config.json as models on the hub have it, from which llama.cpp's converter reads;
    newer transformers name Gemma 4's layers with full attention one by one."""
    if config["model_type"] == "gpt2":
        config = config | {name: config[own] for name, own in _GPT2_FIELDS.items()}
        config["intermediate_size"] = config["n_inner"] or 4 * config["n_embd"]
    of_layers = (config.get("per_layer_config") or {}).values()
    full: dict[str, Any] = next(iter(of_layers), {})
    found = {"num_global_key_value_heads": full.get("num_key_value_heads")} if full else {}
    if "head_dim" in full:
        found["global_head_dim"] = full["head_dim"]
    if config.get("head_dim") is None:
        found["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if "model_max_length" in config:  # Kimi's
        found["max_position_embeddings"] = config["model_max_length"]
    return config | found


def architecture_of(config: dict[str, Any]) -> str:
    """Return the name of the architecture in the file."""
    name: str = config.get(WRITTEN_AS) or ARCHITECTURES[config["architectures"][0]]
    return f"{name}_moe" if "moe" in config.get("layers_block_type", ()) else name


def count_layers(config: dict[str, Any]) -> int:
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def stored_name(names: gguf.TensorNameMap, name: str) -> str:
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
