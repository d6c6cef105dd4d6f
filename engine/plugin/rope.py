"""Rotary embeddings whose frequencies depend on the sequence's length.

transformers chooses them in each step by the longest sequence of the batch. A sequence's numbers
would then depend on the rest of its batch, and keys in the cache would be rotated by other
frequencies than later queries. So they are chosen once, by the longest sequence that the server
accepts.

Phi-3.5-MoE also chooses the scale of its rotations by the length. transformers' code for it rotates
long sequences by the frequencies of short ones; the model was trained with those of long ones, as
are computed here.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
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
    if module.config.model_type == "phimoe":
        module.attention_scaling = _phimoe_scale(module.config.rope_parameters, length)
        module.forward = MethodType(_rotations, module)


def _phimoe_scale(rope: dict[str, Any], length: int) -> float:
    is_long = length > rope["original_max_position_embeddings"]
    scale: float = rope["long_mscale" if is_long else "short_mscale"]
    return scale


def _rotations(module: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, by what ``_freeze`` chose: the module's own ``forward`` chooses by
    the positions."""
    angles = position_ids[..., None].float() * module.inv_freq.float()
    angles = torch.cat((angles, angles), dim=-1)
    scale = module.attention_scaling
    return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)
