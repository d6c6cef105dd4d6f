"""Which arguments name GGUF files. Imports nothing: every command asks."""

from __future__ import annotations

from pathlib import Path

SUFFIX = ".gguf"


def is_gguf_name(text: str) -> bool:
    """True if ``text`` names a GGUF file rather than a directory."""
    return text.lower().endswith(SUFFIX) and not Path(text).is_dir()
