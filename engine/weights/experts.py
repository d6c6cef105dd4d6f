"""The experts of a layer that a checkpoint stores as two tensors, seen as a matrix for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from engine.architecture.features import ExpertStorage
from engine.sharding.shard import Range
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import Float8Source, GroupedSource
from engine.weights.sharded import SlicingSource
from engine.weights.stored import Shape
from engine.weights.weights import Shapes, narrowed

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


class _Place(NamedTuple):
    """Where an expert's matrix is: ``rows`` outputs from ``first`` on, of those that the expert
    ``number`` has in the tensor ``stack``."""

    stack: str
    number: int
    first: int
    rows: int


def _place(name: str, shape: Shape) -> _Place | None:
    """Return where a parameter is stored; None unless it belongs to an expert."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return None
    prefix, number, kind = match.groups()
    stack = f"{prefix}.{'down' if kind == 'down' else 'gate_up'}_proj"
    return _Place(stack, int(number), shape[0] if kind == "up" else 0, shape[0])


def stacked_shapes(shapes: Shapes, storage: ExpertStorage) -> dict[str, Shape]:
    """Return the shapes of a checkpoint's tensors, for those of the parameters ``shapes``."""
    if storage is ExpertStorage.APART:
        return dict(shapes)
    found: dict[str, Shape] = {}
    for name, shape in shapes.items():
        place = _place(name, shape)
        if place is None:
            found[name] = shape
            continue
        # The last expert's rows are the last ones.
        outputs, inputs = place.first + place.rows, shape[1]
        matrix = (outputs, inputs) if storage is ExpertStorage.ROWS else (inputs, outputs)
        found[place.stack] = (place.number + 1, *matrix)
    return found


def expert_storage(
    stored: Mapping[str, Shape], shapes: Shapes, usual: ExpertStorage
) -> ExpertStorage:
    """Return how the tensors ``stored`` hold experts, for parameters of ``shapes``; ``usual`` if
    they do not show it."""
    if usual is ExpertStorage.APART:
        return usual
    others = {ExpertStorage.ROWS: ExpertStorage.COLUMNS, ExpertStorage.COLUMNS: ExpertStorage.ROWS}
    for name, shape in stacked_shapes(shapes, usual).items():
        if name not in shapes and name in stored:  # which may have either shape
            return usual if stored[name] == shape else others[usual]
    # Matrices in few bits have other names, which begin so.
    parted = tuple(name.removesuffix("weight") for name in shapes if _EXPERT.fullmatch(name))
    return ExpertStorage.APART if any(name.startswith(parted) for name in stored) else usual


class ExpertWeights:
    """``source``: of the checkpoint's tensors. See ``WeightSource``. Holds a layer's tensors until
    all its experts have been taken."""

    def __init__(self, source: SlicingSource, shapes: Shapes, storage: ExpertStorage) -> None:
        """``shapes``: of the parameters."""
        self._source = source
        self._is_transposed = storage is ExpertStorage.COLUMNS
        self._places: dict[str, _Place] = {}
        self._untaken: dict[str, int] = {}  # elements, by the name of a stack
        for name, shape in shapes.items():
            if (place := _place(name, shape)) is not None:
                self._places[name] = place
                self._untaken[place.stack] = self._untaken.get(place.stack, 0) + prod(shape)
        self._held: dict[str, Tensor] = {}

    def tensor(self, name: str) -> Tensor:
        place = self._places.get(name)
        if place is None:
            return self._source.tensor(name)
        assert self._untaken[place.stack], f"{name} was read before"
        matrix = self._matrix(place).clone(memory_format=torch.contiguous_format)
        self._untaken[place.stack] -= matrix.numel()
        if not self._untaken[place.stack]:
            del self._held[place.stack]
        return matrix

    def part(self, name: str, dim: int, ranges: tuple[Range, ...]) -> Tensor:
        """See ``SlicingSource``; of experts, all are read whole."""
        if name not in self._places:
            return self._source.part(name, dim, ranges)
        return narrowed(self.tensor(name), dim, ranges)

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix in few bits; None if it is stored otherwise."""
        if name in self._places or not isinstance(self._source, GroupedSource):
            return None
        return self._source.grouped(name)

    def float8(self, name: str) -> GroupedWeight | None:
        """Return a matrix in E4M3; None if it is stored otherwise."""
        if name in self._places or not isinstance(self._source, Float8Source):
            return None
        return self._source.float8(name)

    def _matrix(self, place: _Place) -> Tensor:
        if place.stack not in self._held:
            self._held[place.stack] = self._source.tensor(place.stack)
        expert = self._held[place.stack][place.number]
        outputs = expert.t() if self._is_transposed else expert
        return outputs[place.first : place.first + place.rows]
