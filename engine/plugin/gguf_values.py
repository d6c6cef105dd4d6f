"""What GGUF files change in the values, orders and shapes of a model's parameters, undone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.weights.grouped import GroupedWeight, Scales
from engine.weights.stored import Shape

# Our products need a scale for so many inputs, or a multiple.
_LEAST_GROUP = 16


@dataclass(frozen=True, slots=True)
class _Change:
    """How a file's tensor differs from the parameter. ``values``: gives the parameter's values.
    ``heads``: the dimension, counted as in the file, whose last elements belong to the value heads
    of linear attention, in another order. ``is_narrow``: each head has one element there.
    ``shape``: gives the tensor's shape, of the parameter's and transformers' configuration."""

    values: Callable[[Tensor], Tensor] | None = None
    heads: int | None = None
    is_narrow: bool = False
    shape: Callable[[Shape, Any], Shape] | None = None


def _less_one(values: Tensor) -> Tensor:
    return values - 1


def _logarithm_of_negative(values: Tensor) -> Tensor:
    return (-values).log()


def _without_channel(shape: Shape, config: Any) -> Shape:
    """A depthwise convolution, [channels, 1, kernel], is stored as [channels, kernel]."""
    return (shape[0], shape[2])


def _as_column(shape: Shape, config: Any) -> Shape:
    return (*shape, 1)


def _by_group(shape: Shape, config: Any) -> Shape:
    groups = config.n_groups if config.model_type == "nemotron_h" else config.mamba_n_groups
    return (groups, shape[0] // groups)


# By how a parameter's name ends; the first that fits counts.
_QWEN35: dict[str, _Change] = {
    "linear_attn.norm.weight": _Change(),
    "norm.weight": _Change(values=_less_one),
    "linear_attn.A_log": _Change(values=_logarithm_of_negative, heads=0, is_narrow=True),
    "linear_attn.dt_bias": _Change(heads=0, is_narrow=True),
    "linear_attn.in_proj_a.weight": _Change(heads=0, is_narrow=True),
    "linear_attn.in_proj_b.weight": _Change(heads=0, is_narrow=True),
    "linear_attn.in_proj_qkv.weight": _Change(heads=0),
    "linear_attn.in_proj_z.weight": _Change(heads=0),
    "linear_attn.conv1d.weight": _Change(heads=0, shape=_without_channel),
    "linear_attn.out_proj.weight": _Change(heads=1),
}
_QWEN3_NEXT: dict[str, _Change] = {
    "linear_attn.norm.weight": _Change(),
    "norm.weight": _Change(values=_less_one),
    "linear_attn.A_log": _Change(values=_logarithm_of_negative),
    "linear_attn.conv1d.weight": _Change(shape=_without_channel),
}
_GEMMA = {"norm.weight": _Change(values=_less_one)}
_LFM2 = {"conv.conv.weight": _Change(shape=_without_channel)}
_OF_MAMBA2 = {
    "conv1d.weight": _Change(shape=_without_channel),
    "A_log": _Change(values=_logarithm_of_negative, shape=_as_column),
    "D": _Change(shape=_as_column),
    "norm.weight": _Change(shape=_by_group),
}
_MAMBA2 = {f"mamba.{name}": change for name, change in _OF_MAMBA2.items()}
_BY_KIND: dict[str, dict[str, _Change]] = {
    "falcon_h1": _MAMBA2,
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "granitemoehybrid": _MAMBA2,
    "kimi_linear": {"forget_gate.A_log": _Change(values=_logarithm_of_negative)},
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "nemotron_h": {f"mixer.{name}": change for name, change in _OF_MAMBA2.items()},
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35,
}
_NONE = _Change()


class Changes:
    """Undoes what the files of a kind of model change; nothing, for most kinds."""

    def __init__(self, config: Any) -> None:
        """``config``: transformers'."""
        self._endings: Mapping[str, _Change] = _BY_KIND.get(config.model_type, {})
        self._key_heads = getattr(config, "linear_num_key_heads", 1)
        self._value_heads = getattr(config, "linear_num_value_heads", 1)
        self._value_size = getattr(config, "linear_value_head_dim", 1)
        self._config = config

    def stored_shape(self, name: str, shape: Shape) -> Shape:
        """Return the shape in the file of the parameter ``name`` of ``shape``."""
        change = self._of(name).shape
        return shape if change is None else change(shape, self._config)

    def undone(self, name: str, stored: Tensor, shape: Shape) -> Tensor:
        """Return the parameter, of ``shape``, of which the file's tensor is ``stored``."""
        change = self._of(name)
        if change.heads is not None and self._differs:
            size = 1 if change.is_narrow else self._value_size
            order = self._order(stored.shape[change.heads], size)
            stored = stored.index_select(change.heads, order)
        if change.values is not None:
            stored = change.values(stored)
        return stored.reshape(shape)

    def undone_in_few_bits(self, name: str, stored: GroupedWeight) -> GroupedWeight | None:
        """Do the same for a matrix; None if no groups of inputs fit its heads."""
        change = self._of(name)
        if change.heads is None or not self._differs:
            return stored
        size = 1 if change.is_narrow else self._value_size
        if change.heads == 0:
            return stored.rows(self._order(stored.shape[0], size))
        return self._columns(stored, size)

    @property
    def _differs(self) -> bool:
        return self._key_heads != self._value_heads

    def _of(self, name: str) -> _Change:
        return next((each for end, each in self._endings.items() if name.endswith(end)), _NONE)

    def _columns(self, stored: GroupedWeight, size: int) -> GroupedWeight | None:
        group = math.gcd(stored.group, size)
        if group % _LEAST_GROUP:
            return None
        # A scale in two parts may be for the inputs of several heads.
        weight = stored.in_groups_of(group)
        inputs = weight.shape[1]
        columns = self._order(inputs, size)
        groups = self._order(inputs // group, size // group)

        def moved(scales: Scales) -> Scales:
            return scales.map(lambda part: part.index_select(1, groups))

        return GroupedWeight(
            weight.codes.index_select(1, columns),
            moved(weight.scales),
            None if weight.minimums is None else moved(weight.minimums),
            group,
        )

    def _order(self, count: int, size: int) -> Tensor:
        """Return where each of ``count`` elements is in the file, of which the last are ``size`` of
        each value head. A file has the first head of each key head, then the second of each."""
        first = count - self._value_heads * size
        heads = torch.arange(self._value_heads).view(-1, self._key_heads).t().reshape(-1, 1)
        moved = first + (heads * size + torch.arange(size)).view(-1)
        return torch.cat([torch.arange(first), moved])
