"""What the keys of MiniMax-M2's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import SIGMOID, local_experts, must_be, partial_rope, plain_router


def minimax_m2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    plain_router(keys, SIGMOID)
    must_be(keys, "expert_feed_forward_length", common["intermediate_size"])
    return {
        "model_type": "minimax_m2",
        **local_experts(keys, common),
        **partial_rope(keys, common),
    }
