"""The tensors of a GGUF file by the names and in the shapes that transformers' model has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from engine.gguf.container import GgufHeader
from engine.gguf.families import keys_of
from engine.gguf.names import layer_of
from engine.gguf.parts import read_gguf_header
from engine.gguf.weights import GgufWeights
from engine.plugin.gguf_values import Changes
from engine.weights.grouped import GroupedWeight, alike, combined, joined
from engine.weights.stored import Shape

Paired = TypeVar("Paired")

_MOST_LAYERS = 4096
# What transformers has as one parameter for all experts of a layer.
_EXPERTS = re.compile(r"(.*\.mlp\.experts)\.(gate_up|down)_proj(_bias)?")


class _Experts(NamedTuple):
    """A parameter of all experts of a layer. ``is_transposed``: to [inputs, outputs].
    ``alternates``: the outputs of gate and up do, instead of following each other."""

    prefix: str
    projections: tuple[str, ...]
    ending: str
    is_transposed: bool
    alternates: bool


class GgufTensors:
    """See ``CheckpointTensors``. Matrices are read in few bits, or dequantized to ``dtype``."""

    def __init__(self, path: Path, ends: ExitStack, model: Any, dtype: torch.dtype) -> None:
        """``model``: what the tensors are for; its weights are not read. Raises ModelError."""
        header = read_gguf_header(path, keep_texts=False)
        self._changes = Changes(model.config)
        stored = [*model.named_parameters(), *_stored_buffers(model)]
        self._shapes: Mapping[str, Shape] = {name: tuple(each.shape) for name, each in stored}
        self._experts = {name: _experts(name, model) for name in self._shapes}
        self._weights = ends.enter_context(
            GgufWeights(
                path,
                dict(part for name in self._shapes for part in self._parts(name)),
                head_dim=0,
                dtype=dtype,
                device=torch.device("cpu"),
                progress=lambda done, total: None,
                ignored=_beyond(header, model.config.num_hidden_layers),
                keeps_float32=True,
            )
        )

    @property
    def names(self) -> list[str]:
        return list(self._shapes)

    def name_in_file(self, name: str) -> str:
        return name

    def reads_in_place(self, name: str) -> bool:
        return False

    def num_bytes(self, name: str) -> int:
        raise AssertionError("no tensor is read in place")

    def read(self, name: str, memory: Tensor | None = None) -> Tensor:
        """Return a tensor, never in ``memory``. Raises WeightsError."""
        parts = [self._weights.tensor(part) for part, _ in self._parts(name)]
        experts = self._experts[name]
        if experts is None:
            [stored] = parts
            return self._changes.undone(name, stored)
        if experts.alternates:
            parts = [_alternating(pair) for pair in _pairs(parts)]
        count = self._shapes[name][0]
        stacked = torch.cat(parts).view(count, -1, *parts[0].shape[1:])
        if experts.is_transposed and stacked.dim() == 3:
            return stacked.transpose(1, 2).contiguous()
        return stacked

    def grouped(self, name: str) -> tuple[GroupedWeight, Shape] | None:
        """Return a matrix in its few bits, of experts all rows, and its shape; None if it is stored
        in floats. Raises WeightsError."""
        found = []
        for part, _ in self._parts(name):
            if (weight := self._weights.grouped(part)) is None:
                return None
            found.append(weight)
        experts = self._experts[name]
        if experts is None:
            undone = self._changes.undone_in_few_bits(name, joined(found))
            return None if undone is None else (undone, self._shapes[name])
        if experts.alternates:
            found = [combined(alike(pair), _alternating) for pair in _pairs(found)]
        return joined(found), self._shapes[name]

    def log(self) -> None:
        """Nothing: ``described_quantization`` says that it is a GGUF file."""

    def _parts(self, name: str) -> list[tuple[str, Shape]]:
        """Return the parameters, by the names of ``GgufWeights``, that make up ``name``: of experts
        each one's, as outputs and inputs."""
        shape, experts = self._shapes[name], self._experts[name]
        if experts is None:
            return [(name, self._changes.stored_shape(name, shape))]
        count, *sizes = shape
        outputs, *inputs = reversed(sizes) if experts.is_transposed else sizes
        own = (outputs // len(experts.projections), *inputs)
        return [
            (f"{experts.prefix}.{number}.{projection}_proj.{experts.ending}", own)
            for number in range(count)
            for projection in experts.projections
        ]


def _stored_buffers(model: Any) -> list[tuple[str, Tensor]]:
    there = model.state_dict().keys()
    return [(name, buffer) for name, buffer in model.named_buffers() if name in there]


def _experts(name: str, model: Any) -> _Experts | None:
    match = _EXPERTS.fullmatch(name)
    if match is None:
        return None
    prefix, kind, bias = match.groups()
    module = model.get_submodule(prefix)
    projections = ("gate", "up") if kind == "gate_up" else ("down",)
    return _Experts(
        prefix,
        projections,
        "bias" if bias else "weight",
        module.is_transposed,
        len(projections) == 2 and not module.is_concatenated,
    )


def _beyond(header: GgufHeader, layers: int) -> list[str]:
    """Return the names of tensors of layers that the model is computed without: they predict
    further tokens."""
    last = keys_of(header).integer("block_count", high=_MOST_LAYERS)
    numbers = ((name, layer_of(name)) for name in header.tensors)
    return [name for name, layer in numbers if layer is not None and layers <= layer < last]


def _pairs(parts: list[Paired]) -> list[list[Paired]]:
    return [parts[first : first + 2] for first in range(0, len(parts), 2)]


def _alternating(pair: list[Tensor]) -> Tensor:
    return torch.stack(pair, 1).flatten(0, 1)
