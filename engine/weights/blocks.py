"""A matrix in the blocks of GGUF files: where it is, for code that reads and packs it itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from engine.weights.file import TensorFile


@dataclass(frozen=True, slots=True)
class BlockRows:
    """``begins``: int64 [outputs], where each one's row begins in its file; 0: it is zeros.
    ``types``: int32 [outputs], of the blocks there, numbered as in the file. ``owners``: int32
    [outputs], which of ``files`` each row is in; these must be open while they are read."""

    files: tuple[TensorFile, ...]
    owners: Tensor
    begins: Tensor
    types: Tensor
    inputs: int

    @classmethod
    def of_file(cls, file: TensorFile, begins: Tensor, types: Tensor, inputs: int) -> Self:
        return cls((file,), torch.zeros_like(types), begins, types, inputs)

    @property
    def shape(self) -> tuple[int, int]:
        return self.begins.shape[0], self.inputs

    def rows(self, index: Tensor) -> BlockRows:
        """Return the outputs ``index``, in its order."""
        return combined_blocks([self], lambda parts: parts[0].index_select(0, index))


def combined_blocks(parts: list[BlockRows], join: Callable[[list[Tensor]], Tensor]) -> BlockRows:
    """Return one matrix made of those with the same inputs, of whose ``owners``, ``begins`` and
    ``types`` ``join`` makes one each."""
    files = tuple(dict.fromkeys(file for part in parts for file in part.files))
    return BlockRows(
        files,
        join([_owners(part, files) for part in parts]),
        join([part.begins for part in parts]),
        join([part.types for part in parts]),
        parts[0].inputs,
    )


def _owners(part: BlockRows, files: tuple[TensorFile, ...]) -> Tensor:
    """Return those of the part among ``files``."""
    if part.files == files[: len(part.files)]:
        return part.owners
    places = torch.tensor([files.index(file) for file in part.files], dtype=torch.int32)
    return places[part.owners.long()]


@runtime_checkable
class BlockSource(Protocol):
    """A source that has some matrices in blocks of files."""

    def tensor(self, name: str) -> Tensor: ...

    def blocks(self, name: str) -> BlockRows | None:
        """Return where a matrix is stored; None if it is not stored in blocks."""
        ...
