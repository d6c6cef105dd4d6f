"""Checksums as hubs state them: SHA-256 of a file, or Git's SHA-1 of a small one."""

from __future__ import annotations

import hashlib
from pathlib import Path

_SHA256_DIGITS = 64
_CHUNK_BYTES = 1 << 20


def has_digest(path: Path, digest: str) -> bool:
    """True if the file has this checksum. ``digest``: 64 or 40 hexadecimal digits. Raises
    OSError."""
    with path.open("rb") as file:
        if len(digest) == _SHA256_DIGITS:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest.lower()
        size = path.stat().st_size
        found = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest() == digest.lower()
