"""Notes the files of the served model, so that no process starts from other files than those that
run: a tokenizer and weights of two models give wrong answers without an error."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.gguf.names import LINK, gguf_of
from engine.gguf.part_names import named_part, parts_by_name
from service.hub.wanted import HubFile, small_files

_SUBDIRECTORIES = ("additional_chat_templates", "[0-9]_*")
# A stat call may hang with the file system. Then the process that is to start shows it.
_MOST_SECONDS = 2.0
_Facts = tuple[int, int]


class ModelFiles:
    """Compares size and time of the last change. Not inodes: some file systems make them up anew.
    Files that are added do not count."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted: dict[Path, _Facts] = {}

    def note(self) -> None:
        """Note the files that are there now."""
        self._noted = {}
        with contextlib.suppress(OSError):
            for path in _files(self._directory):
                if (facts := _facts(path)) is not None:
                    self._noted[path] = facts

    def changed(self) -> Path | None:
        """Return the first file that was changed or removed since; None if none was, if all are
        gone (the file system may come back), or if it cannot be seen."""
        found: list[Path] = []

        def compare() -> None:
            with contextlib.suppress(OSError):
                now = {path: _facts(path) for path in self._noted}
                if any(now.values()):
                    found.extend(path for path in now if now[path] != self._noted[path])

        with contextlib.suppress(RuntimeError):  # threads are short
            thread = threading.Thread(target=compare, name="model-files", daemon=True)
            thread.start()
            thread.join(_MOST_SECONDS)
        return next(iter(found), None)


def _facts(path: Path) -> _Facts | None:
    """Return what changes with the file's content; None if it is missing. Raises OSError."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size, status.st_mtime_ns


def _files(directory: Path) -> Iterator[Path]:
    """Yield those that workers and engines read. Raises OSError."""
    there = [
        *directory.glob("*"),
        *(path for s in _SUBDIRECTORIES for path in directory.glob(f"{s}/*")),
    ]
    names = (HubFile(path.relative_to(directory).as_posix(), 0, "") for path in there)
    yield from sorted(directory / file.name for file in small_files(names))
    yield from sorted(path for path in there if path.suffix == ".safetensors")
    if gguf_of(directory) is not None:
        yield from parts_by_name(named_part(directory / LINK))
