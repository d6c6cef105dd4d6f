"""What the tour says at the moment: a small file that the tour writes and every page reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

VARIABLE = "QUIRE_TOUR_FILE"


class Caption(msgspec.Struct, frozen=True):
    """``number`` of ``acts``; ``look``: where to look, in a sentence; ``page``: its path in the
    dashboard; ``seconds``: until the next act begins; ``api_key``: with which the Playground can
    chat."""

    number: int
    acts: int
    title: str
    text: str
    look: str
    page: str
    seconds: int
    api_key: str


def write(path: Path, caption: Caption) -> None:
    """Replace the caption, at once for all readers."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(caption))
    new.replace(path)


def read(environment: Mapping[str, str] = os.environ) -> Caption | None:
    """Return the caption; None if this dashboard is not on a tour."""
    path = environment.get(VARIABLE)
    if not path:
        return None
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Caption)
    except (OSError, msgspec.DecodeError):
        return None
