"""What the keys of Kimi-Linear's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.deepseek import latent_attention
from engine.gguf.keys import MAX_HEAD_DIM, MAX_KERNEL, MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import (
    FULL,
    SIGMOID,
    mixture_with_shared,
    must_be,
    plain_rope,
)


def kimi_linear(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers without heads of keys have Kimi's delta attention. No layer has rotary embeddings."""
    must_be(keys, "expert_gating_func", SIGMOID)
    must_be(keys, "nextn_predict_layers", 0)
    layers = common["num_hidden_layers"]
    heads = keys.per_layer("attention.head_count_kv", layers, low=0, high=MAX_SIZE)
    if not any(heads):
        raise keys.unsupported("attention.head_count_kv", "must be above 0 in some layer")
    if not keys.file.flag(keys.name("expert_weights_norm"), True):
        raise keys.unsupported("expert_weights_norm", "false is not supported; it must be true")
    mixture = mixture_with_shared(keys, common, layers)
    dense, count = mixture.pop("first_k_dense_replace"), mixture.pop("n_routed_experts")
    return {
        "model_type": "kimi_linear",
        "pad_token_id": None,  # transformers' own may be outside the vocabulary
        **latent_attention(keys, common),
        "layer_types": [FULL if each else "linear_attention" for each in heads],
        "linear_num_heads": common["num_attention_heads"],
        "linear_head_dim": keys.integer("kda.head_dim", high=MAX_HEAD_DIM),
        "linear_conv_kernel_dim": keys.integer("ssm.conv_kernel", low=2, high=MAX_KERNEL),
        **mixture,
        "num_local_experts": count,
        "norm_topk_prob": True,
        "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        **plain_rope(keys, common),
    }
