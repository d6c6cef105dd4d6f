"""What the keys of StarCoder2's GGUF files mean in config.json."""

from __future__ import annotations

from typing import Any

from engine.gguf.keys import MAX_POSITIONS, ArchitectureKeys
from engine.gguf.settings import plain_rope

_WINDOW = 4096
"""That of all published models. Files do not say it, and llama.cpp has none."""


def starcoder2(keys: ArchitectureKeys, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "starcoder2",
        "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": common["rms_norm_eps"],
        "sliding_window": keys.integer("attention.sliding_window", _WINDOW, high=MAX_POSITIONS),
        "use_bias": common["attention_bias"],
        **plain_rope(keys, common),
    }
