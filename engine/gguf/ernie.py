"""What the keys of GGUF files of Ernie 4.5's mixtures mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_SIZE, ArchitectureKeys
from engine.gguf.settings import SOFTMAX, experts, must_be, plain_rope, plain_router

_MOST_SHARED = 64


def ernie4_5_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    plain_router(keys, SOFTMAX)
    # llama.cpp cannot load a file of which only every other layer has experts.
    must_be(keys, "interleave_moe_layer_step", 1)
    layers = common["num_hidden_layers"]
    found = experts(keys, common, "expert_feed_forward_length")
    inner = found["moe_intermediate_size"]
    most = min(MAX_SIZE, _MOST_SHARED * inner)
    shared = keys.integer("expert_shared_feed_forward_length", 0, low=0, high=most)
    keys.require_multiple("expert_shared_feed_forward_length", shared, inner)
    return {
        "model_type": "ernie4_5_moe",
        "moe_num_experts": found["num_experts"],
        "moe_k": found["num_experts_per_tok"],
        "moe_intermediate_size": inner,
        "moe_num_shared_experts": shared // inner,
        "moe_layer_start_index": keys.integer("leading_dense_block_count", 0, low=0, high=layers),
        "moe_layer_end_index": layers - 1,
        "moe_layer_interval": 1,
        "use_bias": common["attention_bias"],
        **plain_rope(keys, common),
    }
