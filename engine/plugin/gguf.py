"""The tensors of a GGUF file by the names and in the shapes that transformers' model has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from engine.architecture.errors import UnsupportedError
from engine.gguf.families import family_of
from engine.gguf.parts import read_gguf_header
from engine.gguf.weights import GgufWeights
from engine.weights.grouped import GroupedWeight, alike, combined, joined
from engine.weights.stored import Shape

Paired = TypeVar("Paired")

# gpt-oss has all experts of a layer in one parameter, [experts, inputs, outputs] if it is a matrix;
# outputs of gate and up alternate.
_EXPERTS = re.compile(r"(.*\.mlp\.experts)\.(gate_up|down)_proj(_bias)?")


class GgufTensors:
    """See ``CheckpointTensors``. Matrices are read in few bits, or dequantized to ``dtype``."""

    def __init__(self, path: Path, ends: ExitStack, model: nn.Module, dtype: torch.dtype) -> None:
        """``model``: what the tensors are for; its weights are not read. Raises ModelError."""
        if not family_of(read_gguf_header(path)).by_transformers:
            raise UnsupportedError(
                f"{path}: --model-impl transformers is not supported for this GGUF file; serve the "
                "original checkpoint, or leave --model-impl out"
            )
        self._shapes: Mapping[str, Shape] = {
            name: tuple(parameter.shape) for name, parameter in model.named_parameters()
        }
        self._weights = ends.enter_context(
            GgufWeights(
                path,
                dict(part for name, shape in self._shapes.items() for part in _parts(name, shape)),
                head_dim=0,
                dtype=dtype,
                device=torch.device("cpu"),
                progress=lambda done, total: None,
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
        parts = [self._weights.tensor(part) for part, _ in _parts(name, self._shapes[name])]
        if _EXPERTS.fullmatch(name) is None:
            return parts[0]
        if _is_gate_up(name):
            parts = [_alternating(pair) for pair in _pairs(parts)]
        stacked = torch.stack(parts)
        return stacked.transpose(1, 2).contiguous() if stacked.dim() == 3 else stacked

    def grouped(self, name: str) -> tuple[GroupedWeight, Shape] | None:
        """Return a matrix in its few bits, of experts all rows, and its shape; None if it is stored
        in floats. Raises WeightsError."""
        found = []
        for part, _ in _parts(name, self._shapes[name]):
            if (weight := self._weights.grouped(part)) is None:
                return None
            found.append(weight)
        if _is_gate_up(name):
            found = [combined(alike(pair), _alternating) for pair in _pairs(found)]
        return joined(found), self._shapes[name]

    def log(self) -> None:
        """Nothing: ``described_quantization`` says that it is a GGUF file."""


def _parts(name: str, shape: Shape) -> list[tuple[str, Shape]]:
    """Return the parameters, by the names of ``GgufWeights``, that make up ``name`` of ``shape``:
    of experts each one's, as outputs and inputs."""
    match = _EXPERTS.fullmatch(name)
    if match is None:
        return [(name, shape)]
    prefix, kind, bias = match.groups()
    count, outputs = shape[0], shape[-1]
    projections = ("gate", "up") if kind == "gate_up" else ("down",)
    own = (outputs // len(projections), *shape[1:-1])
    ending = "bias" if bias else "weight"
    return [
        (f"{prefix}.{number}.{projection}_proj.{ending}", own)
        for number in range(count)
        for projection in projections
    ]


def _is_gate_up(name: str) -> bool:
    match = _EXPERTS.fullmatch(name)
    return match is not None and match[2] == "gate_up"


def _pairs(parts: list[Paired]) -> list[list[Paired]]:
    return [parts[first : first + 2] for first in range(0, len(parts), 2)]


def _alternating(pair: list[Tensor]) -> Tensor:
    return torch.stack(pair, 1).flatten(0, 1)
