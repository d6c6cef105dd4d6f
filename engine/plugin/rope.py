"""Rotary embeddings whose frequencies depend on the sequence's length.

transformers chooses them in each step by the longest sequence of the batch. A sequence's numbers
would then depend on the rest of its batch, and keys in the cache would be rotated by other
frequencies than later queries. So they are chosen once, by the longest sequence that the server
accepts.

Phi-3.5-MoE also chooses the scale of its rotations by the length. transformers' code for it chooses
the frequencies of long sequences, too, but rotates them by those of short ones, which is taken for
a mistake here.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.architecture.fields import ConfigFields
from engine.architecture.rope import MAX_LENGTH, RopeConfig, scaled_positions

_BY_LENGTH = ("dynamic", "longrope")
_FROZEN = "frozen"  # a kind of which transformers updates nothing


class Reach(NamedTuple):
    """The longest sequences, in tokens: with frequencies that do not depend on it, and with those
    that do (``dynamic``)."""

    usual: int
    dynamic: int


def reach(model: nn.Module, model_type: str, positions: int) -> Reach:
    """Return how long sequences may be where ``model`` scales its rotary embeddings.
    ``positions``: of its configuration. To be called before frequencies are chosen. Raises
    ConfigError for a scaling that is out of range."""
    ropes = {*_scalings(model)}
    usual = {rope for rope in ropes if rope.kind != "dynamic"}
    return Reach(
        scaled_positions(model_type, usual, positions),
        scaled_positions(model_type, ropes, positions),
    )


def _scalings(model: nn.Module) -> Iterator[RopeConfig]:
    module: Any
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if not isinstance(kinds, str | dict):
            continue
        name = "rope_parameters"
        fields = ConfigFields("config.json", {name: getattr(module.config, name, None)})
        if isinstance(kinds, str):
            yield _scaling(kinds, fields.section(name))
        elif (settings := fields.section(name)) is not None:
            for layer_type, kind in kinds.items():
                yield _scaling(kind, settings.section(layer_type))


def _scaling(kind: str, settings: ConfigFields | None) -> RopeConfig:
    """Return what of ``settings`` says how long sequences may be. Raises ConfigError."""
    if settings is None:
        return RopeConfig(kind=kind)
    return RopeConfig(
        kind=kind,
        factor=settings.number("factor", 1.0, low=1e-6, high=1e6),
        original_positions=settings.integer(
            "original_max_position_embeddings", 0, low=0, high=MAX_LENGTH
        ),
    )


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
