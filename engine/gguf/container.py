"""Reads the header of one GGUF file (versions 2 and 3, little-endian): keys and tensor positions.

A GGUF file is untrusted input. Every count, length, type, dimension and offset is checked
against what is left of the file and against a limit before anything is allocated for it, and an
error names the file and the field.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.architecture.errors import WeightsError
from engine.gguf.types import TYPES, TensorType
from engine.weights.file import TensorFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT_KEY = "general.alignment"

MAX_HEADER_BYTES = 256 << 20
_MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
_MAX_NAME_BYTES = 1 << 10
_MAX_STRINGS = 1 << 23  # elements of all arrays of strings
_MAX_DIMS = 4
_MAX_ELEMENTS = 1 << 48
_MAX_ALIGNMENT = 1 << 20
_DEFAULT_ALIGNMENT = 32
# The least that a key takes (name, type, value) and a tensor (name, count, a dimension, type,
# offset): the bytes left of a file bound the counts that it can claim.
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_READ_BYTES = 1 << 20
_LENGTH = struct.Struct("<Q")  # of a string
_LENGTH_BYTES = _LENGTH.size

_AGAIN = "; download it again"
_PAGE = "it is a web page; download the file itself"
# By how they begin.
_OTHER_FILES = {
    b"vers": "it may be a Git LFS pointer; 'git lfs pull' fetches the file itself",
    b"<!DO": _PAGE,
    b"<!do": _PAGE,
    b"<htm": _PAGE,
}

_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9

Value = int | float | bool | str | list[str] | np.ndarray[Any, Any]
"""A key's value. Arrays of numbers are numpy arrays, arrays of strings lists."""


class GgufTensor(NamedTuple):
    """``shape``: outermost dimension first, as in torch; ``begin``: its first byte in the file
    ``path``."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    begin: int
    path: Path

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, whose elements are those of the last dimension."""
        return self.shape[-1] // self.type.block * self.type.num_bytes

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """``keys`` and ``tensors`` in the order of the file, or of a model's files."""

    path: Path
    version: int
    keys: dict[str, Value]
    tensors: dict[str, GgufTensor]


def header_of(file: TensorFile, *, keep_texts: bool = True) -> GgufHeader:
    """Raises WeightsError unless the header is well-formed and all tensors lie in the file, apart
    from each other. Without ``keep_texts`` arrays of strings, such as the vocabulary, are empty,
    which takes a tenth of the time."""
    cursor = _Cursor(file, keep_texts)
    magic = cursor.take(4, "magic")
    if magic != MAGIC:
        why = _OTHER_FILES.get(bytes(magic), "it is not a GGUF file")
        raise cursor.error("magic", f"is {bytes(magic)!r}: {why}")
    version = cursor.u32("version")
    if version not in VERSIONS:
        why = "it is big-endian" if version >> 24 and not version & 0xFFFF else "not supported"
        raise cursor.error("version", f"is {version}: {why}; supported: 2 and 3, little-endian")
    num_tensors = cursor.count("tensor_count", MAX_TENSORS, _MIN_TENSOR_BYTES)
    num_keys = cursor.count("metadata_kv_count", _MAX_KEYS, _MIN_KEY_BYTES)
    keys = _read_keys(cursor, num_keys)
    alignment = _alignment(cursor, keys)
    infos = [_read_info(cursor, number, alignment) for number in range(num_tensors)]
    data = -(-cursor.position // alignment) * alignment
    tensors = _placed(cursor, infos, data)
    return GgufHeader(file.path, version, keys, tensors)


class _Cursor:
    """Reads a file from its beginning, piece by piece."""

    def __init__(self, file: TensorFile, keep_texts: bool) -> None:
        self._file = file
        self.keep_texts = keep_texts
        self._end = min(file.size, MAX_HEADER_BYTES)
        self._buffer = b""
        self._first = 0  # position of the buffer in the file
        self.position = 0
        self.strings = 0

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def size(self) -> int:
        return self._file.size

    @property
    def left(self) -> int:
        """Bytes that the header may still take."""
        return self._end - self.position

    def error(self, field: str, what: str) -> WeightsError:
        return WeightsError(f"cannot read {self._file.path}: {field} {what}")

    def take(self, count: int, field: str) -> memoryview:
        """Return the next bytes."""
        if count > self.left:
            if self._end < self.size:
                raise self.error(field, f"ends beyond the {MAX_HEADER_BYTES} bytes of a header")
            raise self.error(
                field,
                f"needs {count} bytes, and the file has only {self.left} more: it is cut short"
                f"{_AGAIN}",
            )
        offset = self.position - self._first
        if offset + count > len(self._buffer):
            read = bytearray(min(max(count, _READ_BYTES), self.left))
            self._file.read_into(memoryview(read), self.position)
            self._buffer, self._first, offset = bytes(read), self.position, 0
        self.position += count
        return memoryview(self._buffer)[offset : offset + count]

    def u32(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "little")

    def u64(self, field: str) -> int:
        return int.from_bytes(self.take(8, field), "little")

    def count(self, field: str, most: int, least_bytes: int) -> int:
        """Read a number of things of which each takes at least ``least_bytes``."""
        found = self.u64(field)
        if found > most:
            raise self.error(field, f"is {found}; at most {most} are allowed")
        if found * least_bytes > self.left:
            raise self.error(
                field,
                f"is {found}, which the remaining {self.left} bytes cannot hold: the file is cut "
                f"short or damaged{_AGAIN}",
            )
        return found

    def text(self, field: str, most: int = MAX_HEADER_BYTES) -> str:
        length = self.u64(f"the length of {field}")
        if length > most:
            raise self.error(f"the length of {field}", f"is {length}; at most {most} is allowed")
        try:
            return str(self.take(length, field), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(field, f"is not UTF-8: {error.reason}") from error

    def skip_texts(self, field: str, count: int) -> None:
        number = 0
        while number < count:
            self.position, skipped = _after_texts(
                self._buffer, self.position - self._first, count - number
            )
            self.position += self._first
            number += skipped
            if number < count:  # it is not in the buffer, or not all of it
                self.text(f"{field}, element {number},")
                number += 1


def _after_texts(buffer: bytes, begin: int, most: int) -> tuple[int, int]:
    """Skip the texts from ``begin`` on that lie wholly in ``buffer``; return where they end and how
    many there are. A vocabulary with its merges has half a million, so the loop is kept short."""
    length_at, last = _LENGTH.unpack_from, len(buffer) - _LENGTH_BYTES
    at = before = begin
    skipped = most
    for number in range(most):
        if at > last:
            skipped = number
            break
        before = at
        at += _LENGTH_BYTES + length_at(buffer, at)[0]
    is_whole = at <= len(buffer) or not skipped
    return (at, skipped) if is_whole else (before, skipped - 1)


def _read_keys(cursor: _Cursor, count: int) -> dict[str, Value]:
    keys: dict[str, Value] = {}
    for number in range(count):
        key = cursor.text(f"the name of key {number}", _MAX_NAME_BYTES)
        if key in keys:
            raise cursor.error(f"key {key!r}", "is given twice")
        kind = cursor.u32(f"the type of {key!r}")
        keys[key] = _read_value(cursor, f"key {key!r}", kind)
    return keys


def _read_value(cursor: _Cursor, field: str, kind: int) -> Value:
    if kind == _STRING:
        return cursor.text(field)
    if kind == _ARRAY:
        return _read_array(cursor, field)
    if kind == _BOOL:
        return bool(cursor.take(1, field)[0])
    if kind not in _NUMBERS:
        raise cursor.error(field, f"has the unknown type {kind}")
    dtype = _NUMBERS[kind]
    value = np.frombuffer(cursor.take(dtype.itemsize, field), dtype)[0]
    # Of a float32, the shortest decimal that means it: 1e-06, as the model's author wrote it.
    return float(str(value)) if dtype.itemsize == 4 and dtype.kind == "f" else value.item()


def _read_array(cursor: _Cursor, field: str) -> Value:
    kind = cursor.u32(f"the element type of {field}")
    if kind == _STRING:
        count = cursor.count(f"the length of {field}", _MAX_STRINGS - cursor.strings, 8)
        cursor.strings += count
        if not cursor.keep_texts:
            cursor.skip_texts(field, count)
            return []
        return [cursor.text(f"{field}, element {number},") for number in range(count)]
    dtype = np.dtype("?") if kind == _BOOL else _NUMBERS.get(kind)
    if dtype is None:
        what = "arrays of arrays are not supported" if kind == _ARRAY else "it is unknown"
        raise cursor.error(f"the element type of {field}", f"is {kind}: {what}")
    count = cursor.count(f"the length of {field}", MAX_HEADER_BYTES, dtype.itemsize)
    raw = cursor.take(count * dtype.itemsize, field)
    if kind == _BOOL:
        flags: np.ndarray[Any, Any] = np.frombuffer(raw, np.uint8) != 0
        return flags
    return np.frombuffer(raw, dtype)


def _alignment(cursor: _Cursor, keys: dict[str, Value]) -> int:
    found = keys.get(ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    if type(found) is not int or not 8 <= found <= _MAX_ALIGNMENT or found & (found - 1):
        raise cursor.error(
            f"key {ALIGNMENT_KEY!r}",
            f"is {_shown(found)}; it must be a power of two from 8 to {_MAX_ALIGNMENT}",
        )
    return found


def _shown(value: Value) -> str:
    return repr(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"


def _read_info(cursor: _Cursor, number: int, alignment: int) -> GgufTensor:
    """Return what the header says of a tensor; ``begin`` is relative to the data."""
    name = cursor.text(f"the name of tensor {number}", _MAX_NAME_BYTES)
    field = f"tensor {name!r}"
    num_dims = cursor.u32(f"the number of dimensions of {field}")
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.error(
            field, f"has {num_dims} dimensions; a tensor has 1 to {_MAX_DIMS} of them"
        )
    dims = struct.unpack(f"<{num_dims}Q", cursor.take(8 * num_dims, f"the dimensions of {field}"))
    kind = cursor.u32(f"the type of {field}")
    offset = cursor.u64(f"the offset of {field}")
    if not all(dims) or math.prod(dims) > _MAX_ELEMENTS:
        raise cursor.error(field, f"has the dimensions {list(dims)}: none, or too many elements")
    if kind not in TYPES:
        raise cursor.error(field, f"has the unknown type {kind}")
    tensor = GgufTensor(name, TYPES[kind], dims[::-1], offset, cursor.path)
    if dims[0] % tensor.type.block:
        raise cursor.error(
            field,
            f"has rows of {dims[0]} elements, which blocks of {tensor.type.block} "
            f"({tensor.type.name}) do not divide",
        )
    if offset % alignment:
        raise cursor.error(
            f"the offset of {field}", f"is {offset}, not a multiple of the alignment {alignment}"
        )
    return tensor


def _placed(cursor: _Cursor, infos: Iterable[GgufTensor], data: int) -> dict[str, GgufTensor]:
    """Return the tensors by name, placed in the file, whose data begin at ``data``."""
    infos = list(infos)
    tensors = {info.name: info._replace(begin=data + info.begin) for info in infos}
    if len(tensors) != len(infos):
        twice = next(name for name, count in Counter(i.name for i in infos).items() if count > 1)
        raise cursor.error(f"tensor {twice!r}", "is given twice")
    end, before = data, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.begin):
        last = tensor.begin + tensor.num_bytes
        if last > cursor.size:
            raise cursor.error(
                f"tensor {tensor.name!r}",
                f"ends at byte {last}, and the file at {cursor.size}: it is cut short{_AGAIN}",
            )
        if tensor.begin < end:
            raise cursor.error(f"the offset of tensor {tensor.name!r}", f"overlaps {before}")
        end, before = last, f"tensor {tensor.name!r}"
    return tensors
