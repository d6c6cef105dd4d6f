"""GGUF files as the source of a model's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.architecture.rotary import pair_order
from engine.gguf.blocks import DECODERS, SUPPORTED_TYPES, DecodedBlocks, Floats
from engine.gguf.container import GgufTensor
from engine.gguf.families import family_of
from engine.gguf.names import ROPE_FACTORS, gguf_name, place_in_stack
from engine.gguf.parts import open_parts
from engine.gguf.types import FLOAT_TYPES, NUMBERS
from engine.weights.blocks import BlockRows
from engine.weights.grouped import GroupedWeight, Scales
from engine.weights.stored import Shape
from engine.weights.weights import Shapes, mismatches, narrowed

# Decoding a piece takes about ten times as much memory for a moment.
_PIECE_BYTES = 1 << 20
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_FLOATS = dict(zip(FLOAT_TYPES, _DTYPES, strict=True))


class _Place(NamedTuple):
    """Where a parameter is: ``rows`` rows from ``first`` on of the files' tensor ``tensor``, seen
    as a matrix. A vector is one row."""

    tensor: str
    first: int
    rows: int


class GgufWeights:
    """The tensors of ``path``, or of all parts of which it is the first, checked against ``shapes``
    when opened, by the names of Hugging Face's checkpoints. A context manager.
    ``progress(done, total)`` is called as each is requested, in elements.

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
        unused: Sequence[str] = (),
        ignored: Iterable[str] = (),
        keeps_float32: bool = False,
    ) -> None:
        """``unused``: parameters that the file may have and that are not read; ``ignored``:
        likewise, the names of tensors. ``keeps_float32``: what is stored in float32 is not rounded.
        Raises ModelError."""
        self._head_dim = head_dim
        self._dtype = dtype
        self._device = device
        self._progress = progress
        self._keeps_float32 = keeps_float32
        self._total = sum(math.prod(shape) for shape in shapes.values())
        self._done = 0
        self._taken: set[str] = set()
        self._ends = ExitStack()
        with ExitStack() as ends:
            header, self._files = open_parts(path, ends)
            self._path = path.parent / path.readlink() if path.is_symlink() else path
            self._tensors = header.tensors
            self._family = family_of(header)
            endings = tuple(f".{module}.weight" for module in self._family.transposed)
            self._transposed = {name for name in shapes if name.endswith(endings)}
            self._shapes = {
                name: shape[::-1] if name in self._transposed else shape
                for name, shape in shapes.items()
            }
            self._places = _places(self._shapes, self._family.modules)
            self._match({*ignored, *(gguf_name(name, self._family.modules) for name in unused)})
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
        self._take(name)
        shape = self._shapes[name]
        keeps = self._keeps_float32 and self._stored(name).type.name == "F32"
        found = torch.empty(shape, dtype=torch.float32 if keeps else self._dtype)
        for first, piece in self._pieces(name):
            values = piece.dequantised() if isinstance(piece, GroupedWeight) else piece
            found.view(-1, shape[-1])[first : first + values.shape[0]] = values
        return (found.t() if name in self._transposed else found).to(self._device)

    def part(self, name: str, dim: int, ranges: tuple[tuple[int, int], ...]) -> Tensor:
        """See ``CheckpointWeights.part``; the whole tensor is read."""
        return narrowed(self.tensor(name), dim, ranges)

    def blocks(self, name: str) -> BlockRows | None:
        """Return where a matrix is in its file; None if it is stored in floats, or transposed."""
        stored = self._stored(name)
        if stored.type.name not in DECODERS or name in self._transposed:
            return None
        self._take(name)
        place = self._places[name]
        begins = torch.arange(place.first, place.first + place.rows) * stored.row_bytes
        types = torch.full((place.rows,), NUMBERS[stored.type.name], dtype=torch.int32)
        file, columns = self._files[stored.path], stored.shape[-1]
        found = BlockRows.of_file(file, begins + stored.begin, types, columns)
        order = self._order(name)
        return found if order is None else found.rows(_by_head(order, place.rows))

    def grouped(self, name: str) -> GroupedWeight | None:
        """Return a matrix in its few bits; None if it is stored in floats, or transposed. Raises
        WeightsError."""
        if self._stored(name).type.name not in DECODERS or name in self._transposed:
            return None
        self._take(name)
        weight: GroupedWeight | None = None
        for first, piece in self._pieces(name):
            assert isinstance(piece, GroupedWeight)
            if weight is None:
                weight = _empty_like(piece, self._places[name].rows)
            weight.put(first, piece)
        return weight

    # --- reading -------------------------------------------------------------------------------

    def _stored(self, name: str) -> GgufTensor:
        return self._tensors[self._places[name].tensor]

    def _take(self, name: str) -> None:
        if name not in self._taken:
            self._taken.add(name)
            self._done += math.prod(self._shapes[name])
        self._progress(self._done, self._total)

    def _order(self, name: str) -> Tensor | None:
        """Return the place in a head at which each of its rows is stored; None: its own."""
        if self._family.permuted and (".q_proj." in name or ".k_proj." in name):
            return torch.argsort(pair_order(self._head_dim))
        return None

    def _pieces(self, name: str) -> Iterator[tuple[int, GroupedWeight | Tensor]]:
        """Yield (first row, rows) of a parameter as a matrix; whole heads if they have an order."""
        stored, place, order = self._stored(name), self._places[name], self._order(name)
        if order is not None and place.rows == 1:  # a bias: one row, permuted by columns
            values = self._rows(stored, 0, 1)
            assert isinstance(values, Tensor)
            yield 0, values.view(-1, self._head_dim)[:, order].reshape(1, -1)
            return
        unit = 1 if order is None else self._head_dim
        count = max(1, _PIECE_BYTES // stored.row_bytes // unit) * unit
        for first in range(0, place.rows, count):
            height = min(count, place.rows - first)
            piece = self._rows(stored, place.first + first, height)
            if order is not None:
                index = _by_head(order, height)
                piece = piece.rows(index) if isinstance(piece, GroupedWeight) else piece[index]
            yield first, piece

    def _rows(self, stored: GgufTensor, first: int, count: int) -> GroupedWeight | Tensor:
        raw = np.empty((count, stored.row_bytes), np.uint8)
        begin = stored.begin + first * stored.row_bytes
        self._files[stored.path].read_into(raw.data.cast("B"), begin)
        return _decoded(stored, raw, stored.shape[-1])

    # --- checking ------------------------------------------------------------------------------

    def _match(self, unused: set[str]) -> None:
        """Find each tensor that ``shapes`` need and report all mismatches at once."""
        expected = _expected(self._shapes, self._places)
        missing = [name for name in expected if name not in self._tensors]
        wrong = []
        for name, shape in expected.items():
            stored = self._tensors.get(name)
            if stored is None:
                continue
            if _without_ones(stored.shape) != _without_ones(shape):
                wrong.append(f"{name} {list(stored.shape)} instead of {list(shape)}")
            elif stored.type.name not in SUPPORTED_TYPES:
                wrong.append(
                    f"{stored.name} of type {stored.type.name}, which is not supported (supported: "
                    f"{', '.join(SUPPORTED_TYPES)})"
                )
            elif stored.type.name in DECODERS and len(shape) == 1:
                wrong.append(f"{stored.name} of type {stored.type.name} instead of floats")
        known = {*expected, *unused, ROPE_FACTORS, *self._family.vectors}
        unexpected = [name for name in self._tensors if name not in known]
        complaints = mismatches(missing=missing, unusable=wrong, unexpected=unexpected)
        if complaints:
            raise WeightsError(f"the tensors in {self._path} do not fit its keys; {complaints}")


def _places(shapes: Shapes, modules: Mapping[str, str]) -> dict[str, _Place]:
    """Return where each parameter is. Those that share a tensor follow each other in it as in
    ``shapes``: query, key, value; gate, up; one expert after the other."""
    places: dict[str, _Place] = {}
    ends: dict[str, int] = {}
    for name, shape in shapes.items():
        tensor = gguf_name(name, modules)
        rows = math.prod(shape[:-1])
        first = ends.get(tensor, 0)
        places[name] = _Place(tensor, first, rows)
        ends[tensor] = first + rows
    return places


def _without_ones(shape: Shape) -> Shape:
    """Leave out leading dimensions of one element, which writers may leave out too."""
    return _without_ones(shape[1:]) if len(shape) > 1 and shape[0] == 1 else shape


def _expected(shapes: Shapes, places: Mapping[str, _Place]) -> dict[str, Shape]:
    """Return the shape that each tensor must have: its parameter's, that of its parameters' rows
    together, or [matrices, rows of one, columns]."""
    parts: dict[str, list[str]] = {}
    for name in shapes:
        parts.setdefault(places[name].tensor, []).append(name)
    found: dict[str, Shape] = {}
    for tensor, names in parts.items():
        *_, columns = shapes[names[0]]
        rows = sum(places[name].rows for name in names)
        stacked = {number for name in names if (number := place_in_stack(name)) is not None}
        if stacked:
            own = (columns,) if len(shapes[names[0]]) == 1 else (rows // len(stacked), columns)
            found[tensor] = (len(stacked), *own)
        else:
            found[tensor] = shapes[names[0]] if len(names) == 1 else (rows, columns)
    return found


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
