"""The tensors of a GGUF file by the names and in the shapes that transformers' model has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.architecture.errors import UnsupportedError
from engine.gguf.families import family_of
from engine.gguf.parts import read_gguf_header
from engine.gguf.weights import GgufWeights
from engine.weights.grouped import GroupedWeight, combined, joined
from engine.weights.stored import Shape

# What gpt-oss has as one parameter for all experts of a layer.
_EXPERTS = re.compile(r"(.*\.mlp\.experts)\.(gate_up|down)_proj(_bias)?")


class GgufTensors:
    """See ``CheckpointTensors``. Matrices are read in few bits, or dequantized and rounded to
    ``rounded``."""

    def __init__(self, path: Path, ends: ExitStack, model: nn.Module, rounded: torch.dtype) -> None:
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
                {own: s for name, shape in self._shapes.items() for own, s in _parts(name, shape)},
                head_dim=0,
                dtype=rounded,
                device=torch.device("cpu"),
                progress=lambda done, total: None,
            )
        )

    @property
    def names(self) -> list[str]:
        return list(self._shapes)

    def name_in_file(self, name: str) -> str:
        return name

    def takes_memory(self, name: str) -> bool:
        return False

    def num_bytes(self, name: str) -> int:
        return 0

    def read(self, name: str, memory: Tensor | None = None) -> Tensor:
        """Return a tensor, never in ``memory``. Raises WeightsError."""
        parts = [self._weights.tensor(own) for own, _ in _parts(name, self._shapes[name])]
        if len(parts) == 1 and _EXPERTS.fullmatch(name) is None:
            return parts[0]
        stacked = _stacked(name, parts)
        return stacked.transpose(1, 2).contiguous() if stacked.dim() == 3 else stacked

    def grouped(self, name: str) -> tuple[GroupedWeight, Shape] | None:
        """Return a matrix in its few bits, of experts all rows, and its shape; None if it is stored
        in floats. Raises WeightsError."""
        found = []
        for own, _ in _parts(name, self._shapes[name]):
            if (part := self._weights.grouped(own)) is None:
                return None
            found.append(part)
        if _is_gate_up(name):
            found = [
                combined([gate, up], lambda two: torch.stack(two, 1).flatten(0, 1))
                for gate, up in zip(found[::2], found[1::2], strict=True)
            ]
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


def _stacked(name: str, parts: list[Tensor]) -> Tensor:
    """Return [experts, outputs, ...]; the outputs of gate and up alternate."""
    if _is_gate_up(name):
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [torch.stack(pair, 1).flatten(0, 1) for pair in pairs]
    return torch.stack(parts)
