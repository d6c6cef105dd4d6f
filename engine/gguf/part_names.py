"""What the files of a model in several are called: as ``llama-gguf-split`` calls them. Imports
little: every command asks."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

MAX_PARTS = 512
"""All of them are open while weights are loaded, and a process may often open 1,024 files."""
_MAX_LINKS = 40
_FORM = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.ASCII | re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class PartName:
    """``stem``: what the names of all parts begin with. ``number``: from 1 to ``count``."""

    stem: str
    number: int
    count: int
    suffix: str = ".gguf"

    def of(self, number: int) -> str:
        """Return the name of the part ``number``."""
        return f"{self.stem}-{number:05d}-of-{self.count:05d}{self.suffix}"


def part_name(name: str) -> PartName | None:
    """Return what the name of a file says; None if it is not that of a part."""
    match = _FORM.fullmatch(name)
    if match is None or not 1 <= int(match[2]) <= int(match[3]):
        return None
    return PartName(match[1], int(match[2]), int(match[3]), match[4])


def named_part(path: Path) -> Path:
    """Return the first of ``path`` and the links that it leads along whose name is that of a part,
    next to which the others are; ``path`` if none is. A model directory's link has another name,
    and so has the file that a link in the hub's cache leads to."""
    found = path
    with contextlib.suppress(OSError):  # then it cannot be opened either
        for _ in range(_MAX_LINKS):
            if part_name(found.name) is not None:
                return found
            if not found.is_symlink():
                break
            found = found.parent / found.readlink()
    return path


def parts_by_name(path: Path) -> list[Path]:
    """Return the paths of all parts of the model to which the file ``path`` belongs by its name;
    only ``path`` if that is not the name of a part, or if there are too many."""
    name = part_name(path.name)
    if name is None or name.count > MAX_PARTS:
        return [path]
    return [path.with_name(name.of(number)) for number in range(1, name.count + 1)]
