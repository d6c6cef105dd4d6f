"""Reads the header of a GGUF model, which may be in several files (``llama-gguf-split``).

Each file is complete, with some of the tensors; the first has the model's keys. The others are
found by their names. All say which part they are, of how many, and how many tensors there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from engine.architecture.errors import ConfigError, WeightsError
from engine.gguf.container import MAX_TENSORS, GgufHeader, GgufTensor, header_of
from engine.gguf.keys import GgufKeys
from engine.gguf.part_names import MAX_PARTS, PartName, named_part, part_name, parts_by_name
from engine.weights.file import TensorFile

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_NUMBERED = re.compile(r"-\d{5}-of-\d{5}.*", re.ASCII | re.DOTALL)
_AGAIN = "download the parts, or split the model, again"


def read_gguf_header(path: Path, *, keep_texts: bool = True) -> GgufHeader:
    """Return the header of a model: the keys of its first file, and the tensors of all.
    ``keep_texts``: see ``header_of``. Raises ModelError."""
    with ExitStack() as ends:
        header, _ = open_parts(path, ends, keep_texts=keep_texts)
    return header


def open_parts(
    path: Path, ends: ExitStack, *, keep_texts: bool = False
) -> tuple[GgufHeader, Mapping[Path, TensorFile]]:
    """Return what ``read_gguf_header`` does, and the model's files, which ``ends`` closes.
    ``keep_texts``: see ``header_of``. Raises ModelError."""
    file = _opened(path, ends)
    header = header_of(file, keep_texts=keep_texts)
    count = GgufKeys(header).integer(_COUNT, 1, low=0, high=MAX_PARTS)
    if count <= 1:  # of files that were merged it is 0
        return header, {path: file}
    first = _first_part(header, count)
    total = GgufKeys(header).integer(_TENSORS, low=1, high=MAX_TENSORS)
    files, tensors = {path: file}, dict(header.tensors)
    for number, other in enumerate(parts_by_name(first)[1:], 1):
        if not other.exists():
            raise WeightsError(
                f"{first} is the first of {count} files ({_COUNT}), and {other.name} is missing; "
                "put all of them into one folder"
            )
        files[other] = _opened(other, ends)
        part = header_of(files[other], keep_texts=False)
        _check(part, {_NUMBER: number, _COUNT: count, _TENSORS: total}, first)
        _add(tensors, part, total)
    if len(tensors) != total:
        raise WeightsError(
            f"{first}: {_TENSORS} is {total}, and its {count} files have {len(tensors)}; {_AGAIN}"
        )
    return GgufHeader(header.path, header.version, header.keys, tensors), files


def _opened(path: Path, ends: ExitStack) -> TensorFile:
    file = TensorFile(path)
    ends.callback(file.close)
    return file


def _first_part(header: GgufHeader, count: int) -> Path:
    """Return the path, next to which the others are, of the first of ``count`` parts. Raises
    ConfigError if it is not the first, or is not called so."""
    path = named_part(header.path)
    name = part_name(path.name)
    number = GgufKeys(header).integer(_NUMBER, low=0, high=count - 1)
    if number:
        first = f", {name.of(1)}" if name is not None else ""
        raise ConfigError(
            f"{path} is part {number + 1} of {count} ({_NUMBER} is {number}); name the first "
            f"one{first}"
        )
    if name is None or (name.number, name.count) != (1, count):
        stem = _NUMBERED.sub("", path.stem) if name is None else name.stem
        raise ConfigError(
            f"{path} is the first of {count} files ({_COUNT}), which are found by their names; "
            f"call it {PartName(stem, 1, count).of(1)}, and the others likewise"
        )
    return path


def _check(part: GgufHeader, expected: Mapping[str, int], first: Path) -> None:
    """Raise ConfigError unless the keys have these values."""
    for key, value in expected.items():
        found = GgufKeys(part).integer(key, low=-(1 << 63), high=1 << 64)
        if found != value:
            raise ConfigError(
                f"{part.path}: {key} is {found}, and next to {first.name} it must be {value}; "
                f"{_AGAIN}"
            )


def _add(tensors: dict[str, GgufTensor], part: GgufHeader, total: int) -> None:
    """Add those of the part. Raises WeightsError for one that another part has, too, and if there
    are more than ``total``: so many parts could hold more than fits into memory."""
    twice = tensors.keys() & part.tensors.keys()
    if twice:
        name = min(twice)
        raise WeightsError(
            f"{part.path}: tensor {name!r} is in {tensors[name].path.name}, too; {_AGAIN}"
        )
    tensors.update(part.tensors)
    if len(tensors) > total:
        raise WeightsError(
            f"{part.path}: the files up to this one have {len(tensors)} tensors, and {_TENSORS} is "
            f"{total}; {_AGAIN}"
        )
