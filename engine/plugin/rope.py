"""Rotary embeddings whose frequencies depend on the sequence's length.

transformers chooses them in each step by the longest sequence of the batch. A sequence's numbers
would then depend on the rest of its batch, and keys in the cache would be rotated by other
frequencies than later queries. So they are chosen once, by the longest sequence that the server
accepts.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_BY_LENGTH = ("dynamic", "longrope")
_FROZEN = "frozen"  # a kind of which transformers updates nothing


def freeze_frequencies(model: nn.Module, max_positions: int) -> None:
    """Choose the frequencies for sequences of up to ``max_positions`` tokens, for good."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            if _depends_on_length(kinds):
                _freeze(module, kinds, max_positions, "", {})
                module.rope_type = _FROZEN  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                if _depends_on_length(kind):
                    _freeze(
                        module, kind, max_positions, f"{layer_type}_", {"layer_type": layer_type}
                    )
                    kinds[layer_type] = _FROZEN


def _depends_on_length(kind: str) -> bool:
    return any(name in kind for name in _BY_LENGTH)


def _freeze(module: Any, kind: str, length: int, prefix: str, options: dict[str, str]) -> None:
    name = f"{prefix}inv_freq"
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](
        module.config, getattr(module, name).device, seq_len=length, **options
    )
    getattr(module, name).copy_(frequencies)
    setattr(module, f"{prefix}attention_scaling", scaling)
