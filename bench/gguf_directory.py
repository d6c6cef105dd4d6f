"""A model directory around a GGUF file, without a tokenizer, which the engine does not need."""

from __future__ import annotations

import json
from pathlib import Path

from engine.gguf.config import config_json
from engine.gguf.names import LINK
from engine.gguf.parts import read_gguf_header


def write_gguf_directory(path: Path, directory: Path) -> None:
    """Fill the empty ``directory``."""
    (directory / "config.json").write_text(json.dumps(config_json(read_gguf_header(path))))
    (directory / LINK).symlink_to(path.resolve())
