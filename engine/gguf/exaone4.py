"""What the keys of EXAONE 4's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import FULL, layers_without_mtp, llama3_rope, one_base, window_fields

_WINDOWED = 64
"""llama.cpp knows the 32B model, which has a sliding window, by its number of layers."""


def exaone4(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    """If some layers have a sliding window, only those have rotary embeddings."""
    layers = layers_without_mtp(keys, common)
    one_base(keys, common["rope_theta"])
    if layers == _WINDOWED or keys.is_set("attention.sliding_window"):
        windows = window_fields(keys, layers, 4)
    else:
        windows = {"layer_types": [FULL] * layers, "sliding_window": None}
    return {
        "model_type": "exaone4",
        "num_hidden_layers": layers,
        **windows,
        **llama3_rope(keys, common),
    }
