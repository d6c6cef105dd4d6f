"""What the keys of GPT-2's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import must_be, refuse_scaling


def gpt2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    refuse_scaling(keys, common)
    must_be(keys, "attention.head_count_kv", common["num_attention_heads"])
    return {
        "model_type": "gpt2",
        "n_embd": common["hidden_size"],
        "n_head": common["num_attention_heads"],
        "n_inner": common["intermediate_size"],
        "n_layer": common["num_hidden_layers"],
        "n_positions": common["max_position_embeddings"],
        "layer_norm_epsilon": common["rms_norm_eps"],
        "activation_function": "gelu_new",
    }
