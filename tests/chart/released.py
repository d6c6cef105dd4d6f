"""Older charts, as they were released: ``older_charts/*.tgz``."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).with_name("older_charts")


def archives() -> dict[str, Path]:
    """Return each older chart by its name: its version, and what it was the first with, if several
    had that version."""
    return {
        path.name.removeprefix("quire-").removesuffix(".tgz"): path
        for path in sorted(_FOLDER.glob("*.tgz"))
    }


def defaults(archive: Path) -> dict[str, Any]:
    """Return the values.yaml of an older chart."""
    with tarfile.open(archive) as packed:
        content = packed.extractfile("quire/values.yaml")
        assert content is not None
        values: dict[str, Any] = yaml.safe_load(content.read())
        return values
