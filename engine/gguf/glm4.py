"""What the keys of GGUF files of GLM-4, and of the mixtures GLM-4.5 to 4.7, mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.names import gguf_name
from engine.gguf.settings import (
    mixture_with_shared,
    must_be,
    own_layers,
    partial_rope,
    sigmoid_router,
)


def glm4(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    if keys.has("rope.dimension_sections"):
        raise keys.unsupported("rope.dimension_sections", "is not supported")
    return {
        "model_type": "glm4",
        "pad_token_id": None,
        "num_hidden_layers": own_layers(keys, common),
        **partial_rope(keys, common),
    }


def glm4_moe(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """Layers that predict further tokens are left out."""
    layers = own_layers(keys, common)
    sigmoid_router(keys)
    for key in ("expert_group_count", "expert_group_used_count"):
        must_be(keys, key, 1)
    norm = gguf_name("model.layers.0.self_attn.q_norm.weight")
    return {
        "model_type": "glm4_moe",
        "num_hidden_layers": layers,
        "use_qk_norm": norm in keys.header.tensors,
        **mixture_with_shared(keys, common, layers),
        **partial_rope(keys, common),
    }
