"""Notes the files of the served model, so that no process starts from other files than those that
run: a tokenizer and weights of two models give wrong answers without an error."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from engine.gguf.names import LINK, gguf_of
from engine.gguf.part_names import named_part, parts_by_name
from service.hub.wanted import SINGLE_WEIGHTS, WEIGHTS_INDEX, HubFile, small_files

_SUBDIRECTORIES = ("additional_chat_templates", "[0-9]_*")
# A file system may hang. Then the process that is to start shows it.
_MOST_SECONDS = 2.0
_MOST_READ = 64 << 20  # bytes of a file; of a larger one, only samples are read
_SAMPLE = 4096


class _Facts(NamedTuple):
    """``time``: of the last change, in nanoseconds."""

    size: int
    time: int


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class ModelFiles:
    """Compares sizes, and contents where the time of the last change differs: the same files may
    have been copied again. Of large files, a few samples of the content."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted: dict[Path, tuple[_Facts, bytes]] = {}

    def note(self) -> None:
        """Note the files that are there now."""
        self._noted = {}
        with contextlib.suppress(OSError):
            for path in _files(self._directory):
                self._noted[path] = _facts(path), _digest(path)

    def changed(self) -> Path | None:
        """Return the first file that was changed, added or removed since; None if none was, if all
        are gone (the file system may come back), if they cannot be seen, or if none was noted."""
        found: list[Path] = []

        def compare() -> None:
            with contextlib.suppress(OSError):
                now = {path: _facts(path) for path in _files(self._directory)}
                if now and self._noted:
                    paths = sorted(self._noted.keys() | now.keys())
                    found.extend(path for path in paths if not self._is_same(path, now.get(path)))

        with contextlib.suppress(RuntimeError):  # threads are short
            thread = threading.Thread(target=compare, name="model-files", daemon=True)
            thread.start()
            thread.join(_MOST_SECONDS)
        return next(iter(found), None)

    def _is_same(self, path: Path, now: _Facts | None) -> bool:
        """Raises OSError."""
        if now is None or path not in self._noted:
            return False
        facts, digest = self._noted[path]
        return facts.size == now.size and (facts.time == now.time or digest == _digest(path))


def _facts(path: Path) -> _Facts:
    """Raises OSError."""
    status = path.stat()
    return _Facts(status.st_size, status.st_mtime_ns)


def _digest(path: Path) -> bytes:
    """Return a digest of the content, or of its beginning, middle and end. Raises OSError."""
    found = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        size = path.stat().st_size
        if size <= _MOST_READ:
            found.update(file.read(_MOST_READ))
        else:
            for begin in (0, size // 2, size - _SAMPLE):
                file.seek(begin)
                found.update(file.read(_SAMPLE))
    return found.digest()


def _files(directory: Path) -> Iterator[Path]:
    """Yield those that workers and engines read. Raises OSError."""
    there = [
        *directory.glob("*"),
        *(path for s in _SUBDIRECTORIES for path in directory.glob(f"{s}/*")),
    ]
    names = [HubFile(path.relative_to(directory).as_posix(), None, "") for path in there]
    wanted = {file.name for file in small_files(names)}
    if directory / SINGLE_WEIGHTS in there:
        wanted = wanted - {WEIGHTS_INDEX} | {SINGLE_WEIGHTS}
    elif WEIGHTS_INDEX in wanted:
        with contextlib.suppress(msgspec.DecodeError):
            index = msgspec.json.decode((directory / WEIGHTS_INDEX).read_bytes(), type=_Index)
            wanted |= set(index.weight_map.values())
    for path in sorted(directory / name for name in wanted):
        if path.is_file():
            yield path
    if gguf_of(directory) is not None:
        yield from parts_by_name(named_part(directory / LINK))
