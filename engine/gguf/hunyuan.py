"""What the keys of GGUF files of Hunyuan, dense and A13B, mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import SOFTMAX, experts, must_be, plain_rope, plain_router


def hunyuan_dense(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """The file's rope.freq_base has what the checkpoint says as alpha."""
    return {"model_type": "hunyuan_v1_dense", **plain_rope(keys, common)}


def hunyuan_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Each expert, and the one that sees all tokens, has the size of a feed-forward network."""
    plain_router(keys, SOFTMAX)
    for key in ("expert_feed_forward_length", "expert_shared_feed_forward_length"):
        must_be(keys, key, common["intermediate_size"])
    found = experts(keys, common, "expert_feed_forward_length")
    return {
        "model_type": "hunyuan_v1_moe",
        "num_experts": found["num_experts"],
        "moe_topk": found["num_experts_per_tok"],
        **plain_rope(keys, common),
    }
