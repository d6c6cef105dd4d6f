"""How each parameter of a transformers model is assembled from the tensors of a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from engine.plugin.gguf_values import Changes
from engine.weights.grouped import GroupedWeight, alike, combined, joined
from engine.weights.stored import Shape

Paired = TypeVar("Paired")

# What transformers has as one parameter for all experts of a layer.
_EXPERTS = re.compile(r"(.*\.experts)\.(gate_up|up|down)_proj(_bias)?")
# Parameters that follow each other as rows of one, and what to replace in its name.
_JOINED = {
    ".input_linear.": (".gate_proj.", ".up_proj."),
    ".self_attn.conv1d.": tuple(f".self_attn.{one}_conv1d." for one in "qkv"),
}
_KV_B = ".kv_b_proj."
_QKVZ = ".in_proj_qkvz."


class StoredPart(NamedTuple):
    """A parameter by a name of ``GgufWeights``, and its shape there."""

    name: str
    shape: Shape


class Composition(Protocol):
    """How one parameter is assembled. ``stored``: the parts, in the order in which the methods take
    them."""

    @property
    def stored(self) -> list[StoredPart]: ...

    def whole(self, parts: list[Tensor]) -> Tensor:
        """Return the parameter."""

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        """Return the parameter as a matrix, of experts all rows; None if it has to be read in
        floats."""


class Splits(NamedTuple):
    """Which parameters the file has in two tensors: ``kv_b_proj`` as attn_k_b and attn_v_b, and
    ``in_proj_qkvz`` as attn_qkv and attn_gate. Older files have one tensor."""

    kv_b: bool
    qkvz: bool

    @classmethod
    def of(cls, tensors: Iterable[str]) -> Self:
        """``tensors``: the names in the file."""
        modules = {name.removesuffix(".weight").rpartition(".")[2] for name in tensors}
        return cls("attn_k_b" in modules, "attn_gate" in modules)


def composition_of(
    name: str, shape: Shape, model: Any, changes: Changes, splits: Splits
) -> Composition:
    """``shape``: of the parameter ``name`` of ``model``."""
    if match := _EXPERTS.fullmatch(name):
        return _experts(match, shape, model)
    for module, parts in _JOINED.items():
        if module in name:
            return _Joined([name.replace(module, part) for part in parts], shape)
    if _QKVZ in name and splits.qkvz:
        return _Qkvz(name, shape, model.config)
    if _KV_B in name and splits.kv_b:
        return _KvB(name, shape, model.config)
    return _Whole(name, shape, changes)


@dataclass(frozen=True, slots=True)
class _Whole:
    """One tensor."""

    name: str
    shape: Shape
    changes: Changes

    @property
    def stored(self) -> list[StoredPart]:
        return [StoredPart(self.name, self.changes.stored_shape(self.name, self.shape))]

    def whole(self, parts: list[Tensor]) -> Tensor:
        return self.changes.undone(self.name, parts[0], self.shape)

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        return self.changes.undone_in_few_bits(self.name, parts[0])


@dataclass(frozen=True, slots=True)
class FromKey:
    """One number, which is a key of the file and not a tensor."""

    value: float
    shape: Shape

    @property
    def stored(self) -> list[StoredPart]:
        return []

    def whole(self, parts: list[Tensor]) -> Tensor:
        return torch.full(self.shape, self.value)

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        return None


@dataclass(frozen=True, slots=True)
class _Experts:
    """Those of a layer. ``is_transposed``: to [inputs, outputs]. ``alternates``: the outputs of
    gate and up do, instead of following each other."""

    prefix: str
    projections: tuple[str, ...]
    ending: str
    shape: Shape
    is_transposed: bool
    alternates: bool

    @property
    def stored(self) -> list[StoredPart]:
        count, *sizes = self.shape
        outputs, *inputs = reversed(sizes) if self.is_transposed else sizes
        own = (outputs // len(self.projections), *inputs)
        return [
            StoredPart(f"{self.prefix}.{number}.{projection}_proj.{self.ending}", own)
            for number in range(count)
            for projection in self.projections
        ]

    def whole(self, parts: list[Tensor]) -> Tensor:
        if self.alternates:
            parts = [_alternating(pair) for pair in _pairs(parts)]
        stacked = torch.cat(parts).view(self.shape[0], -1, *parts[0].shape[1:])
        if self.is_transposed and stacked.dim() == 3:
            return stacked.transpose(1, 2).contiguous()
        return stacked

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        if self.alternates:
            parts = [combined(alike(pair), _alternating) for pair in _pairs(parts)]
        return joined(parts)


def _experts(match: re.Match[str], shape: Shape, model: Any) -> _Experts:
    prefix, kind, bias = match.groups()
    module = model.get_submodule(prefix)
    projections = tuple(kind.split("_"))
    return _Experts(
        prefix,
        projections,
        "bias" if bias else "weight",
        shape,
        # Granite's experts have neither attribute.
        getattr(module, "is_transposed", False),
        len(projections) == 2 and not getattr(module, "is_concatenated", True),
    )


@dataclass(frozen=True, slots=True)
class _Joined:
    """The rows of several parameters of one shape; the file has a tensor for each."""

    names: list[str]
    shape: Shape

    @property
    def stored(self) -> list[StoredPart]:
        own = (self.shape[0] // len(self.names), *self.shape[1:])
        return [StoredPart(name, own) for name in self.names]

    def whole(self, parts: list[Tensor]) -> Tensor:
        return torch.cat(parts)

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        return joined(parts)


class _KvB:
    """kv_b_proj: each head's key rows, which the file stores transposed, then its value rows."""

    def __init__(self, name: str, shape: Shape, config: Any) -> None:
        heads, rank = config.num_attention_heads, shape[1]
        self.stored = [
            StoredPart(name.replace(_KV_B, ".k_b_proj."), (heads, rank, config.qk_nope_head_dim)),
            StoredPart(name.replace(_KV_B, ".v_b_proj."), (heads, config.v_head_dim, rank)),
        ]
        self._shape = shape

    def whole(self, parts: list[Tensor]) -> Tensor:
        keys, values = parts
        return torch.cat([keys.transpose(1, 2), values], 1).reshape(self._shape)

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        """None: the groups of the file's keys run along outputs, not inputs."""
        return None


class _Qkvz:
    """in_proj_qkvz: query, key, value and gate rows of one key head after the other. The file has
    all queries, keys and values in one tensor, and the gates in another."""

    def __init__(self, name: str, shape: Shape, config: Any) -> None:
        heads, inputs = config.linear_num_key_heads, shape[1]
        of_keys = heads * config.linear_key_head_dim
        of_values = config.linear_num_value_heads * config.linear_value_head_dim
        self.stored = [
            StoredPart(name.replace(_QKVZ, ".in_proj_qkv."), (2 * of_keys + of_values, inputs)),
            StoredPart(name.replace(_QKVZ, ".in_proj_z."), (of_values, inputs)),
        ]
        self._heads, self._sizes = heads, [of_keys, of_keys, of_values, of_values]

    def whole(self, parts: list[Tensor]) -> Tensor:
        return torch.cat(parts)[self._order()]

    def in_few_bits(self, parts: list[GroupedWeight]) -> GroupedWeight | None:
        return joined(parts).rows(self._order())

    def _order(self) -> Tensor:
        """Return the row in the concatenation of the file's tensors that each row is. Not made
        before the tensors are known to exist: a hostile file may state any size."""
        kinds = torch.arange(sum(self._sizes)).split(self._sizes)
        return torch.cat([each.view(self._heads, -1) for each in kinds], 1).view(-1)


def _pairs(parts: list[Paired]) -> list[list[Paired]]:
    return [parts[first : first + 2] for first in range(0, len(parts), 2)]


def _alternating(pair: list[Tensor]) -> Tensor:
    return torch.stack(pair, 1).flatten(0, 1)
