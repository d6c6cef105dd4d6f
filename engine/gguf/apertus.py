"""What the keys of Apertus's GGUF files mean in config.json, and the parameters that are keys."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import ArchitectureKeys
from engine.gguf.settings import llama3_rope

_ACTIVATION = ("alpha_n", "alpha_p", "beta", "eps")
_MOST_LAYERS = 4096
_LARGEST = 1e3


def apertus(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    activation_parameters(keys)  # so that wrong ones are refused at the start
    if keys.is_set("attention.scale"):
        raise keys.unsupported("attention.scale", "is not supported")
    return {"model_type": "apertus", "hidden_act": "xielu", **llama3_rope(keys, common)}


def activation_parameters(keys: ArchitectureKeys) -> dict[str, float]:
    """Return the parameters of each layer's activation (xIELU), by name. Raises ConfigError."""
    layers = keys.integer("block_count", high=_MOST_LAYERS)
    return {
        f"model.layers.{layer}.mlp.act_fn.{name}": value
        for name in _ACTIVATION
        for layer, value in enumerate(
            keys.file.number_per_layer(f"xielu.{name}", layers, low=-_LARGEST, high=_LARGEST)
        )
    }
