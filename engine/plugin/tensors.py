"""A checkpoint's tensors by the names that they have in an unquantized one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from engine.architecture.quantization import read_quantization
from engine.architecture.text_part import TextModelPart
from engine.quantized.biases import zero_biases
from engine.quantized.checkpoint import named_tensors
from engine.quantized.layouts import QuantizedTensor
from engine.quantized.weights import dequantised, log_kept
from engine.weights.grouped import GroupedWeight
from engine.weights.stored import StoredTensor, read_tensor, stored_bytes
from engine.weights.text_part import by_text_name
from engine.weights.weights import opened, refuse_codes


class CheckpointTensors:
    """The files are open until ``ends``. Quantized tensors are read as they are, or dequantized and
    rounded to ``rounded``."""

    def __init__(
        self,
        directory: Path,
        ends: ExitStack,
        rounded: torch.dtype,
        text_part: TextModelPart | None = None,
    ) -> None:
        """``text_part``: see ``PluginConfig``. Raises ModelError."""
        self._rounded = rounded
        self._quantized = read_quantization(directory)
        self._kept = self._dequantized = 0
        stored = opened(directory, ends, text_part)
        tensors: Mapping[str, StoredTensor | QuantizedTensor] = stored
        if self._quantized is None:
            refuse_codes(stored)
        else:
            tensors = named_tensors(stored, self._quantized, text_part)
        self._tensors = by_text_name(tensors, text_part)

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def unexpected(self, names: list[str]) -> list[str]:
        """Return the names in the files of tensors that belong to no parameter, but for biases that
        change nothing. Raises WeightsError."""
        zeros = zero_biases(self._tensors, names)
        return [self._tensors[name].name for name in names if name not in zeros]

    def reads_in_place(self, name: str) -> bool:
        """Whether ``read`` fills the memory that it is given."""
        return not isinstance(self._tensors[name], QuantizedTensor)

    def num_bytes(self, name: str) -> int:
        """Return how many bytes ``read`` fills, of a tensor that is read in place. Raises
        WeightsError."""
        stored = self._tensors[name]
        assert not isinstance(stored, QuantizedTensor)
        return stored_bytes(stored)

    def read(self, name: str, memory: Tensor | None = None) -> Tensor:
        """Return a tensor; in ``memory`` (of bytes), if given, unless it is quantized. Raises
        WeightsError."""
        stored = self._tensors[name]
        if not isinstance(stored, QuantizedTensor):
            return read_tensor(stored, memory)
        self._dequantized += 1
        return dequantised(stored, self._rounded)

    def grouped(self, name: str) -> tuple[GroupedWeight, tuple[int, ...]] | None:
        """Return a quantized tensor in its few bits, of stacked matrices all rows, and its shape;
        None for one that can be read only dequantized. Raises WeightsError."""
        stored = self._tensors[name]
        if not isinstance(stored, QuantizedTensor):
            return None
        found = stored.load().grouped()
        if found is None:
            return None
        self._kept += 1
        return found, stored.shape

    def log(self) -> None:
        """Say how many matrices were read in which way."""
        if self._quantized is not None:
            log_kept(self._quantized, self._kept, self._dequantized)
