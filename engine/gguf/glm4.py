"""What the keys of GGUF files of GLM-4-0414, and of the mixtures GLM-4.5 to 4.7, mean in
config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import (
    has_parameter,
    layers_without_mtp,
    mixture_with_shared,
    partial_rope,
    sigmoid_router,
)


def glm4(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    if keys.has("rope.dimension_sections"):
        # Models that read images: the converter reorders the rows of their queries and keys.
        raise keys.unsupported(
            "rope.dimension_sections", "is not supported; serve the original checkpoint"
        )
    return {
        "model_type": "glm4",
        "pad_token_id": None,
        "num_hidden_layers": layers_without_mtp(keys, common),
        **partial_rope(keys, common),
    }


def glm4_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    layers = layers_without_mtp(keys, common)
    sigmoid_router(keys)
    return {
        "model_type": "glm4_moe",
        "num_hidden_layers": layers,
        "use_qk_norm": has_parameter(keys, "model.layers.0.self_attn.q_norm.weight"),
        **mixture_with_shared(keys, common, layers),
        **partial_rope(keys, common),
    }
