"""A matrix in the blocks of its GGUF file: where it is, for code that reads and packs it itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from engine.weights.file import TensorFile


@dataclass(frozen=True, slots=True)
class BlockRows:
    """``begins``: int64 [outputs], where each one's row begins in ``file``; 0: it is zeros.
    ``types``: int32 [outputs], of the blocks there, numbered as in the file. ``file`` must be open
    while they are read."""

    file: TensorFile
    begins: Tensor
    types: Tensor
    inputs: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.begins.shape[0], self.inputs

    def rows(self, index: Tensor) -> BlockRows:
        """Return the outputs ``index``, in its order."""
        return combined_blocks([self], lambda parts: parts[0].index_select(0, index))


def combined_blocks(parts: list[BlockRows], join: Callable[[list[Tensor]], Tensor]) -> BlockRows:
    """Return one matrix made of those of one file with the same inputs, of whose ``begins`` and
    ``types`` ``join`` makes one each."""
    return BlockRows(
        parts[0].file,
        join([part.begins for part in parts]),
        join([part.types for part in parts]),
        parts[0].inputs,
    )


@runtime_checkable
class BlockSource(Protocol):
    """A source that has some matrices in blocks of a file."""

    def tensor(self, name: str) -> Tensor: ...

    def blocks(self, name: str) -> BlockRows | None:
        """Return where a matrix is stored; None if it is not stored in blocks."""
        ...
