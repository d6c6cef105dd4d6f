"""A GGUF file as the source of a model's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.architecture.rotary import pair_order
from engine.gguf.blocks import DECODERS, DecodedBlocks, Floats
from engine.gguf.config import family_of
from engine.gguf.container import GgufTensor, header_of
from engine.gguf.names import ROPE_FACTORS, gguf_name
from engine.gguf.types import NUMBERS
from engine.weights.blocks import BlockRows
from engine.weights.file import TensorFile
from engine.weights.grouped import GroupedWeight, Scales
from engine.weights.weights import Shapes, mismatches, narrowed

# Decoding a piece takes about ten times as much memory for a moment.
_PIECE_BYTES = 1 << 20
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


class GgufWeights:
    """The tensors of ``path``, checked against ``shapes`` when opened, by the names of Hugging
    Face's checkpoints. A context manager. ``progress(done, total)`` is called as each is requested,
    in elements.

    Quantized tensors are dequantized to ``dtype``; ``grouped`` returns one as it is stored, and
    ``blocks`` where.
    """

    def __init__(
        self,
        path: Path,
        shapes: Shapes,
        *,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[int, int], None],
    ) -> None:
        """Raises ModelError."""
        self._shapes = shapes
        self._head_dim = head_dim
        self._dtype = dtype
        self._device = device
        self._progress = progress
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0
        self._taken: set[str] = set()
        self._ends = ExitStack()
        with ExitStack() as ends:
            self._file = TensorFile(path)
            ends.callback(self._file.close)
            header = header_of(self._file, keep_texts=False)
            self._tensors = header.tensors
            self._permuted = family_of(header).permuted
            self._match()
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

    def tensor(self, name: str) -> Tensor:
        """Raises WeightsError."""
        stored = self._take(name)
        shape = self._shapes[name]
        found = torch.empty(shape, dtype=self._dtype)
        for first, piece in self._pieces(stored, self._order(name)):
            values = piece.dequantised() if isinstance(piece, GroupedWeight) else piece
            found.view(-1, shape[-1])[first : first + values.shape[0]] = values
        return found.to(self._device)

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """See ``CheckpointWeights.part``; the whole tensor is read."""
        return narrowed(self.tensor(name), dim, ranges)

    def blocks(self, name: str) -> BlockRows | None:
        """Return where a matrix is in the file; None if it is stored in floats."""
        stored = self._tensors[gguf_name(name)]
        if stored.type.name not in DECODERS:
            return None
        self._take(name)
        rows, inputs = stored.shape
        begins = torch.arange(rows) * stored.row_bytes + stored.begin
        types = torch.full((rows,), NUMBERS[stored.type.name], dtype=torch.int32)
        found = BlockRows(self._file, begins, types, inputs)
        order = self._order(name)
        return found if order is None else found.rows(_by_head(order, rows))

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix in its few bits; None if it is stored in floats. Raises WeightsError."""
        if self._tensors[gguf_name(name)].type.name not in DECODERS:
            return None
        stored = self._take(name)
        weight: GroupedWeight | None = None
        for first, piece in self._pieces(stored, self._order(name)):
            assert isinstance(piece, GroupedWeight)
            if weight is None:
                weight = _empty_like(piece, stored.shape[0])
            weight.put(first, piece)
        return weight

    # --- reading -------------------------------------------------------------------------------

    def _take(self, name: str) -> GgufTensor:
        if name not in self._taken:
            self._taken.add(name)
            self._done += math.prod(self._shapes[name])
        self._progress(self._done, self._total)
        return self._tensors[gguf_name(name)]

    def _order(self, name: str) -> Tensor | None:
        """Return the place in a head at which each of its rows is stored; None: its own."""
        if self._permuted and (".q_proj." in name or ".k_proj." in name):
            return torch.argsort(pair_order(self._head_dim))
        return None

    def _pieces(
        self, stored: GgufTensor, order: Tensor | None
    ) -> Iterator[tuple[int, GroupedWeight | Tensor]]:
        """Yield (first row, rows) of the tensor as a matrix; whole heads if they have an order."""
        row_bytes, columns = stored.row_bytes, stored.shape[-1]
        rows = stored.num_bytes // row_bytes
        unit = 1
        if order is not None:
            if len(stored.shape) == 1:  # a bias: one row, permuted by columns
                ((first, piece),) = self._pieces(stored, None)
                assert isinstance(piece, Tensor)
                yield first, piece.view(-1, self._head_dim)[:, order].reshape(1, -1)
                return
            unit = self._head_dim
        count = max(1, _PIECE_BYTES // row_bytes // unit) * unit
        for first in range(0, rows, count):
            height = min(count, rows - first)
            raw = np.empty((height, row_bytes), np.uint8)
            self._file.read_into(raw.data.cast("B"), stored.begin + first * row_bytes)
            piece = _decoded(stored, raw, columns)
            if order is not None:
                index = _by_head(order, height)
                piece = piece.rows(index) if isinstance(piece, GroupedWeight) else piece[index]
            yield first, piece

    # --- checking ------------------------------------------------------------------------------

    def _match(self) -> None:
        """Find each tensor of ``shapes`` and report all mismatches at once."""
        names = {name: gguf_name(name) for name in self._shapes}
        missing = [stored for stored in names.values() if stored not in self._tensors]
        wrong = []
        for name, shape in self._shapes.items():
            stored = self._tensors.get(names[name])
            if stored is None:
                continue
            if stored.shape != tuple(shape):
                wrong.append(f"{stored.name} {list(stored.shape)} instead of {list(shape)}")
            elif stored.type.name not in DECODERS | _FLOATS:
                wrong.append(
                    f"{stored.name} of type {stored.type.name}, which is not supported (supported: "
                    f"{', '.join([*_FLOATS, *DECODERS])})"
                )
            elif stored.type.name in DECODERS and len(shape) == 1:
                wrong.append(f"{stored.name} of type {stored.type.name} instead of floats")
        known = {*names.values(), ROPE_FACTORS}
        unexpected = [name for name in self._tensors if name not in known]
        complaints = mismatches(missing=missing, unusable=wrong, unexpected=unexpected)
        if complaints:
            raise WeightsError(
                f"the tensors in {self._file.path} do not fit its keys; {complaints}"
            )


def _decoded(stored: GgufTensor, raw: np.ndarray[Any, Any], columns: int) -> GroupedWeight | Tensor:
    """``raw``: uint8 [rows, bytes of a row]."""
    dtype = _FLOATS.get(stored.type.name)
    if dtype is not None:
        return torch.from_numpy(raw).view(dtype)
    return grouped_weight(
        DECODERS[stored.type.name](raw.reshape(-1, stored.type.num_bytes)), columns
    )


def grouped_weight(found: DecodedBlocks, columns: int) -> GroupedWeight:
    """Return the matrix with rows of ``columns`` elements of which these are the blocks."""
    rows = found.codes.size // columns

    def scales(coarse: Floats | None, fine: NDArray[Any] | None) -> Scales | None:
        if coarse is None:
            return None
        return Scales(
            torch.from_numpy(coarse.reshape(rows, -1)),
            None if fine is None else torch.from_numpy(fine.astype(np.int16).reshape(rows, -1)),
        )

    groups = 1 if found.fine_scales is None else found.fine_scales.shape[1]
    made = scales(found.scales, found.fine_scales)
    assert made is not None
    return GroupedWeight(
        torch.from_numpy(found.codes.reshape(rows, columns)),
        made,
        scales(found.minimums, found.fine_minimums),
        found.codes.shape[1] // groups,
    )


def _by_head(order: Tensor, rows: int) -> Tensor:
    """Return the place of each of ``rows`` rows, of which each head's are in ``order``."""
    return (torch.arange(0, rows, order.shape[0]).unsqueeze(1) + order).view(-1)


def _empty_like(piece: GroupedWeight, rows: int) -> GroupedWeight:
    return piece.map(lambda part: torch.empty((rows, part.shape[1]), dtype=part.dtype))
