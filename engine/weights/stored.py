"""Safetensors files: maps tensors to the bytes of a file.

A file is the length of its header (8 bytes, little-endian), the header (JSON: each tensor's dtype,
shape and position), and the tensors' bytes, row-major, without gaps. A header is checked against
the file's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated

import msgspec
import torch
from msgspec import Meta
from torch import Tensor

from engine.architecture.errors import WeightsError
from engine.weights.file import TensorFile

Shape = tuple[int, ...]
ByteRange = tuple[int, int]  # first element, and the one after the last

SERVED_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}

# With those that buffers of some models have.
_READ_DTYPES = {
    **SERVED_DTYPES,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
# Numbers to which only a quantized checkpoint's scales give a meaning.
_CODE_DTYPES = {**_READ_DTYPES, "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.uint8}

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_METADATA = "__metadata__"

_Count = Annotated[int, Meta(ge=0, le=2**62)]
_MOST_DIMS = 64  # torch's own limit


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: Annotated[tuple[_Count, ...], Meta(max_length=_MOST_DIMS)]
    data_offsets: tuple[_Count, _Count]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """``dtype``: as the format names it. ``begin``: its first byte in the file."""

    file: TensorFile
    name: str
    dtype: str
    shape: Shape
    begin: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Elements ``ranges`` of dimension ``dim`` of a stored tensor of a supported dtype,
    concatenated."""

    stored: StoredTensor
    dim: int
    ranges: tuple[ByteRange, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which it is stored."""
        return SERVED_DTYPES[self.stored.dtype]

    @property
    def shape(self) -> Shape:
        shape = self.stored.shape
        count = sum(last - first for first, last in self.ranges)
        return (*shape[: self.dim], count, *shape[self.dim + 1 :])

    @property
    def num_bytes(self) -> int:
        """The number of bytes in the file."""
        return prod(self.shape) * self.dtype.itemsize

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (offset in the file, bytes) of exactly the wanted bytes, in order."""
        shape, size = self.stored.shape, self.dtype.itemsize
        element = prod(shape[self.dim + 1 :]) * size
        row = shape[self.dim] * element
        end = self.stored.begin
        length = 0  # of the run that ends there
        for begin in range(prod(shape[: self.dim])):
            for first, last in self.ranges:
                if first == last:
                    continue
                offset = self.stored.begin + begin * row + first * element
                if offset != end and length:
                    yield end - length, length
                    length = 0
                end = offset + (last - first) * element
                length += (last - first) * element
        if length:
            yield end - length, length


def whole(stored: StoredTensor) -> Wanted:
    return Wanted(stored, 0, ((0, stored.shape[0]),))


def part(stored: StoredTensor, dim: int, ranges: tuple[ByteRange, ...]) -> Wanted:
    """Raises ValueError for ranges outside the tensor."""
    if any(not 0 <= first <= last <= stored.shape[dim] for first, last in ranges):
        raise ValueError(f"{stored.name} {list(stored.shape)} has no {ranges} of dimension {dim}")
    return Wanted(stored, dim, ranges)


def stored_bytes(stored: StoredTensor) -> int:
    """Return the bytes of a tensor in its file. Raises WeightsError."""
    return prod(stored.shape) * _stored_dtype(stored).itemsize


def read_tensor(stored: StoredTensor, memory: Tensor | None = None) -> Tensor:
    """Return a tensor as it is stored, in its own dtype, on the CPU; in ``memory`` (of bytes), if
    given. Raises WeightsError."""
    return _read(stored, _stored_dtype(stored), memory)


def read_codes(stored: StoredTensor) -> Tensor:
    """Do the same for a part of a quantized matrix. Raises WeightsError."""
    return _read(stored, _stored_dtype(stored, _CODE_DTYPES), None)


def _read(stored: StoredTensor, dtype: torch.dtype, memory: Tensor | None) -> Tensor:
    size = prod(stored.shape) * dtype.itemsize
    memory = torch.empty(size, dtype=torch.uint8) if memory is None else memory[:size]
    stored.file.read_into(memory.numpy().data, stored.begin)
    return memory.view(dtype).view(stored.shape)


def _stored_dtype(
    stored: StoredTensor, dtypes: Mapping[str, torch.dtype] = _READ_DTYPES
) -> torch.dtype:
    dtype = dtypes.get(stored.dtype)
    if dtype is None:
        raise WeightsError(
            f"{stored.name} of {stored.file.path} is of type {stored.dtype}, which is not supported"
        )
    return dtype


def stored_tensors(file: TensorFile) -> list[StoredTensor]:
    """Parse the header. Raises WeightsError unless it fits the file."""
    header = _header(file)
    try:
        entries = {
            name: msgspec.json.decode(entry, type=_Entry)
            for name, entry in msgspec.json.decode(header, type=dict[str, msgspec.Raw]).items()
            if name != _METADATA
        }
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WeightsError(f"cannot read {file.path}: its header is malformed: {error}") from error
    return _placed(file, entries, _LENGTH_BYTES + len(header))


def _header(file: TensorFile) -> bytearray:
    if file.size < _LENGTH_BYTES:
        raise WeightsError(
            f"cannot read {file.path}: {file.size} bytes cannot be a safetensors file"
        )
    buffer = bytearray(_LENGTH_BYTES)
    file.read_into(memoryview(buffer), 0)
    length = int.from_bytes(buffer, "little")
    if length > min(file.size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
        raise WeightsError(
            f"cannot read {file.path}: a header of {length} bytes in a file of {file.size}: it is "
            "cut short, or is not a safetensors file"
        )
    header = bytearray(length)
    file.read_into(memoryview(header), _LENGTH_BYTES)
    return header


def _placed(file: TensorFile, entries: dict[str, _Entry], data: int) -> list[StoredTensor]:
    """``data``: the first byte after the header, to which entries are relative."""
    tensors = []
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        first, last = entry.data_offsets
        if first != end or last < first:
            raise WeightsError(
                f"cannot read {file.path}: its header is malformed: {name} is at bytes {first} to "
                f"{last}, where {end} is next"
            )
        dtype = _CODE_DTYPES.get(entry.dtype)
        if dtype is not None and prod(entry.shape) * dtype.itemsize != last - first:
            raise WeightsError(
                f"cannot read {file.path}: its header is malformed: {name} of type {entry.dtype} "
                f"and shape {list(entry.shape)} in {last - first} bytes"
            )
        tensors.append(StoredTensor(file, name, entry.dtype, entry.shape, data + first))
        end = last
    if data + end != file.size:
        raise WeightsError(
            f"cannot read {file.path}: it has {file.size} bytes, and its header describes "
            f"{data + end}: it is cut short, or was not written to its end"
        )
    return tensors
