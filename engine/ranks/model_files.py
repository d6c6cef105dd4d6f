"""Whether two hosts have the same model under the same path, as far as that is seen soon."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_READ = ("*.safetensors", "*.json", "*.gguf")
_SAMPLES = 8  # of each file, evenly spaced; the first and the last byte are among them
_SAMPLE_BYTES = 1 << 16
_LENGTH_BYTES = 8  # of a safetensors file's header, little-endian, before the header
_MOST_HEADER_BYTES = 100_000_000  # as the safetensors library has it


def model_fingerprint(model: Path) -> str:
    """Return a digest of the files that a rank may read: their names and sizes, the headers of
    safetensors files, samples of all, and the whole config.json; empty if there are none.

    Reads at most half a MiB of each file besides its header. Raises OSError.
    """
    files = {path for pattern in _READ for path in model.glob(pattern) if path.is_file()}
    if not files:
        return ""
    digest = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                digest.update(_header(file))
            for sample in _samples(file, size):
                digest.update(sample)
    config = model / "config.json"
    if config in files:
        digest.update(config.read_bytes())
    return digest.hexdigest()


def _header(file: BinaryIO) -> bytes:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    return file.read(min(length, _MOST_HEADER_BYTES))


def _samples(file: BinaryIO, size: int) -> Iterator[bytes]:
    last = max(0, size - _SAMPLE_BYTES)
    for place in sorted({last * number // (_SAMPLES - 1) for number in range(_SAMPLES)}):
        file.seek(place)
        yield file.read(_SAMPLE_BYTES)
