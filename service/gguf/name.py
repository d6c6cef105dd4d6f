"""Which arguments name GGUF files, and the models in them. Imports little: every command asks."""

from __future__ import annotations

from pathlib import Path

from engine.gguf.part_names import part_name

SUFFIX = ".gguf"


def is_gguf_name(text: str) -> bool:
    """True if ``text`` names a GGUF file rather than a directory."""
    return text.lower().endswith(SUFFIX) and not Path(text).is_dir()


def model_name(path: Path) -> str:
    """Return what the model in a GGUF file, or the first of several, is called."""
    part = part_name(path.name)
    return path.stem if part is None else part.stem
