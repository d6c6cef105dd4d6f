"""What the keys of dots.llm1's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import FULL, mixture_with_shared, must_be, plain_rope, sigmoid_router


def dots1(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    sigmoid_router(keys)
    must_be(keys, "attention.sliding_window", 0)
    layers = common["num_hidden_layers"]
    return {
        "model_type": "dots1",
        "sliding_window": None,
        "layer_types": [FULL] * layers,
        **mixture_with_shared(keys, common, layers),
        **plain_rope(keys, common),
    }
