"""A quantized checkpoint as the source of a model's tensors."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from engine.architecture.schemes import QuantizedFormat
from engine.architecture.text_part import TextModelPart
from engine.quantized.biases import zero_biases
from engine.quantized.checkpoint import named_tensors
from engine.quantized.layouts import QuantizedTensor
from engine.weights.grouped import GroupedWeight
from engine.weights.stored import read_tensor
from engine.weights.text_part import by_text_name
from engine.weights.weights import Shapes, matched, narrowed, opened, spellings

logger = logging.getLogger(__name__)


class QuantizedCheckpoint:
    """The tensors of the checkpoint in ``directory``, checked against ``shapes`` when opened. A
    context manager. ``progress(done, total)`` is called as each is requested, in elements.

    ``tensor`` returns matrices dequantized and rounded to ``rounded``, the dtype that config.json
    names; ``grouped`` returns those that are small integers as such.
    """

    def __init__(
        self,
        directory: Path,
        shapes: Shapes,
        quantized: QuantizedFormat,
        *,
        unused: Iterable[str],
        dtype: torch.dtype,
        rounded: torch.dtype,
        device: torch.device,
        progress: Callable[[int, int], None],
        text_part: TextModelPart | None = None,
    ) -> None:
        """``text_part``: see ``ModelConfig``. Raises WeightsError."""
        self._shapes = shapes
        self._quantized = quantized
        self._dtype = dtype
        self._rounded = rounded
        self._device = device
        self._progress = progress
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0
        self._kept = self._dequantized = 0
        self._ends = ExitStack()
        with ExitStack() as ends:
            found = named_tensors(opened(directory, ends, text_part), quantized, text_part)
            tensors = by_text_name(found, text_part)
            unused = frozenset(unused)
            known = {spelling for name in (*shapes, *unused) for spelling in spellings(name)}
            zeros = zero_biases(tensors, (name for name in tensors if name not in known))
            self._named = matched(directory, shapes, tensors, unused | zeros)
            self._ends = ends.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.close()
        if error is None:
            log_kept(self._quantized, self._kept, self._dequantized)

    def tensor(self, name: str) -> Tensor:
        """Raises WeightsError."""
        stored = self._named[name]
        self._count(name)
        if not isinstance(stored, QuantizedTensor):
            return read_tensor(stored).to(self._dtype).to(self._device)
        self._dequantized += 1
        return dequantised(stored, self._rounded).to(self._dtype).to(self._device)

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """See ``CheckpointWeights.part``; the whole tensor is read."""
        return narrowed(self.tensor(name), dim, ranges)

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix in its few bits; None if it is stored otherwise. Raises WeightsError."""
        stored = self._named[name]
        if not isinstance(stored, QuantizedTensor):
            return None
        return self._noted(name, stored.load().grouped())

    def float8(self, name: str) -> GroupedWeight | None:
        """Return a matrix in E4M3; None if it is stored otherwise. Raises WeightsError."""
        stored = self._named[name]
        if not isinstance(stored, QuantizedTensor) or stored.stack:
            return None
        return self._noted(name, stored.load().float8())

    def _noted(self, name: str, found: GroupedWeight | None) -> GroupedWeight | None:
        if found is not None:
            self._kept += 1
            self._count(name)
        return found

    def _count(self, name: str) -> None:
        self._done += math.prod(self._shapes[name])
        self._progress(self._done, self._total)


def log_kept(quantized: QuantizedFormat, kept: int, dequantized: int) -> None:
    """Log how many matrices were read in few bits. Kernels on a GPU may still dequantize some of
    these, and log that."""
    if quantized.is_floats:
        return
    logger.info(
        "%s: matrices read in few bits: %d, dequantized: %d",
        quantized.description,
        kept,
        dequantized,
    )


def dequantised(stored: QuantizedTensor, rounded: torch.dtype) -> Tensor:
    """Return a quantized tensor in floats. Raises WeightsError."""
    matrix = stored.load()
    found = torch.empty(matrix.outputs, matrix.inputs, dtype=rounded)
    matrix.dequantise(found)
    if not stored.stack:
        return found
    return found.view(stored.stack, -1, matrix.inputs).transpose(1, 2)
