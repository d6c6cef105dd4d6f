"""Whether the GGUF file of a model directory is still the one for which that was made."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from engine.architecture.errors import UnsupportedError, WeightsError
from engine.architecture.fields import read_json_file
from engine.gguf.container import MAX_HEADER_BYTES, GgufHeader
from engine.gguf.families import family_of
from engine.gguf.keys import ARCHITECTURE_KEY
from engine.gguf.names import LINK, gguf_of
from engine.gguf.parts import read_gguf_header

MARKS = "gguf_files.json"
"""In a model directory: the ``FileMark`` of each of its GGUF files."""
_READ_BYTES = 1 << 20


class FileMark(NamedTuple):
    """What shows that a file has the same keys and tensors as before: its ``size``, and the SHA-256
    of its first ``header`` bytes. (Not its time, which a copy or a backup may change.)"""

    path: str
    size: int
    header: Annotated[int, Meta(ge=0, le=MAX_HEADER_BYTES)]
    digest: str


def marks_of(header: GgufHeader) -> list[FileMark]:
    """Return those of all files of a model. Raises WeightsError."""
    ends: dict[Path, int] = {}
    for tensor in header.tensors.values():
        ends[tensor.path] = min(tensor.begin, ends.get(tensor.path, tensor.begin))
    try:
        return [
            FileMark(str(path), path.stat().st_size, end, _digest(path, end))
            for path, end in ends.items()
        ]
    except OSError as error:
        raise WeightsError(f"cannot read {header.path}: {error.strerror}") from error


def check_gguf(directory: Path, model_impl: str) -> None:
    """Raise WeightsError if a GGUF file is not the one for which the directory was made: its
    configuration and tokenizer may be wrong. Raise UnsupportedError if ``model_impl`` (auto,
    native, transformers) cannot compute it."""
    path = gguf_of(directory)
    if path is None:
        return
    if (directory / MARKS).exists():
        for mark in _read_marks(directory / MARKS):
            _check_unchanged(mark)
    family = family_of(header := read_gguf_header(directory / LINK, keep_texts=False))
    computes = "transformers" if family.by_transformers else "native"
    if model_impl not in ("auto", computes):
        raise UnsupportedError(
            f"{path}: --model-impl {model_impl} is not supported for GGUF files of "
            f"{header.keys[ARCHITECTURE_KEY]!r}; leave it out, or serve the original checkpoint"
        )


def _read_marks(path: Path) -> list[FileMark]:
    try:
        return msgspec.convert(read_json_file(path), list[FileMark])
    except msgspec.ValidationError as error:
        raise WeightsError(f"{path} is malformed: {error}") from error


def _check_unchanged(mark: FileMark) -> None:
    path = Path(mark.path)
    try:
        found = path.stat()
        is_same = (
            stat.S_ISREG(found.st_mode)
            and found.st_size == mark.size
            and _digest(path, mark.header) == mark.digest
        )
    except ValueError as error:  # a path with a NUL
        raise WeightsError(f"{MARKS} is malformed: {error}") from error
    except OSError as error:
        raise WeightsError(
            f"cannot read {path}: {error.strerror}; put it back, or restart the server"
        ) from error
    if not is_same:
        raise WeightsError(f"{path} has changed since the server started; restart the server")


def _digest(path: Path, count: int) -> str:
    """Of the first ``count`` bytes. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while count > 0 and (data := file.read(min(count, _READ_BYTES))):
            digest.update(data)
            count -= len(data)
    return digest.hexdigest()
