"""Checkpoints of families that store a Llama-like model differently, seen as Llama's.

Some use other names, store several projections as one tensor, or the weights of norms less one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import Float8Source, GroupedSource
from engine.weights.stored import Shape
from engine.weights.weights import Shapes, WeightSource


def stored_shapes(shapes: Shapes, config: ModelConfig) -> dict[str, Shape]:
    """Return the shapes of the tensors in a checkpoint, for those of a Llama-like model's
    parameters (``engine.model.parameters.parameter_shapes``)."""
    found: dict[str, Shape] = {}
    for name, shape in shapes.items():
        stored = stored_name(name, config)
        rows = found[stored][0] if stored in found else 0
        found[stored] = (rows + shape[0], *shape[1:])
    return found


class FamilyWeights:
    """``source``: of the checkpoint's tensors. See ``WeightSource``."""

    def __init__(self, source: WeightSource, shapes: Shapes, config: ModelConfig) -> None:
        """``shapes``: of the parameters, of which several may be one tensor of ``source``."""
        self._source = source
        self._config = config
        self._parts: dict[str, list[tuple[str, int, int]]] = {}  # of a stored tensor: its rows
        for name, shape in shapes.items():
            parts = self._parts.setdefault(stored_name(name, config), [])
            first = parts[-1][2] if parts else 0
            parts.append((name, first, first + shape[0]))
        self._held: dict[str, Tensor] = {}  # parameters read along with others
        self._held_few: dict[str, GroupedWeight] = {}  # likewise, in few bits

    def tensor(self, name: str) -> Tensor:
        if name in self._held:
            return self._held.pop(name)
        stored = stored_name(name, self._config)
        tensor = self._source.tensor(stored)
        if self._config.offset_norms and name.endswith("norm.weight"):
            return tensor.float() + 1  # which is not exact in fewer bits
        parts = self._parts[stored]
        if len(parts) == 1:
            return tensor
        self._held |= {part: tensor[first:end] for part, first, end in parts}
        return self._held.pop(name)

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix in few bits; None if it is stored otherwise."""
        read = self._source.grouped if isinstance(self._source, GroupedSource) else None
        return self._few(name, read, are_floats=False)

    def float8(self, name: str) -> GroupedWeight | None:
        """Return a matrix in E4M3; None if it is stored otherwise."""
        read = self._source.float8 if isinstance(self._source, Float8Source) else None
        return self._few(name, read, are_floats=True)

    def _few(
        self, name: str, read: Callable[[str], GroupedWeight | None] | None, *, are_floats: bool
    ) -> GroupedWeight | None:
        if (held := self._held_few.get(name)) is not None:
            if held.codes.is_floating_point() != are_floats:
                return None
            return self._held_few.pop(name)
        if name in self._held or read is None:
            return None
        stored = stored_name(name, self._config)
        found = read(stored)
        parts = self._parts[stored]
        if found is None or len(parts) == 1:
            return found
        self._held_few |= {part: found.slice(first, end - first) for part, first, end in parts}
        return self._held_few.pop(name)


def stored_name(name: str, config: ModelConfig) -> str:
    """Return the name of the tensor that is, or has, the parameter ``name``."""
    for pattern, replacement in config.tensor_names:
        stored, count = re.subn(pattern, replacement, name)
        if count:
            return stored
    return name
