"""Whether the GGUF file of a model directory is still the one for which that was made."""

from __future__ import annotations

import json
from pathlib import Path

from engine.architecture.errors import UnsupportedError, WeightsError
from engine.gguf.families import family_of
from engine.gguf.keys import ARCHITECTURE_KEY
from engine.gguf.names import LINK, gguf_of
from engine.gguf.parts import read_gguf_header

FACTS = "gguf_files.json"
"""In a model directory: the path, size and time of last change, in ns, of each of its GGUF files
when it was made."""

Facts = tuple[str, int, int]


def file_facts(path: Path) -> Facts:
    """Raises OSError."""
    real = path.resolve(strict=True)
    status = real.stat()
    return str(real), status.st_size, status.st_mtime_ns


def check_gguf(directory: Path, model_impl: str) -> None:
    """Raise WeightsError if a GGUF file is not the one for which the directory was made: its
    configuration and tokenizer may be wrong. Raise UnsupportedError if ``model_impl`` (auto,
    native, transformers) cannot compute it."""
    path = gguf_of(directory)
    if path is None:
        return
    if (directory / FACTS).exists():
        for expected in json.loads((directory / FACTS).read_text()):
            _check_unchanged(expected)
    family = family_of(header := read_gguf_header(directory / LINK, keep_texts=False))
    computes = "transformers" if family.by_transformers else "native"
    if model_impl not in ("auto", computes):
        raise UnsupportedError(
            f"{path}: --model-impl {model_impl} is not supported for GGUF files of "
            f"{header.keys[ARCHITECTURE_KEY]!r}; leave it out, or serve the original checkpoint"
        )


def _check_unchanged(expected: Facts) -> None:
    name, size, changed = expected
    try:
        found = file_facts(Path(name))
    except OSError as error:
        raise WeightsError(
            f"cannot read {name}: {error.strerror}; put it back, or restart the server"
        ) from error
    if found[1:] != (size, changed):
        raise WeightsError(f"{name} has changed since the server started; restart the server")
