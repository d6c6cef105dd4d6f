"""Memory that the supervisor keeps for its children: what one wrote, the next finds."""

from __future__ import annotations

import os
from pathlib import Path


def kept_memory(directory: Path, name: str) -> int:
    """Return the descriptor of an empty file. Raises OSError.

    It is in memory where the kernel offers that (Linux). On a disk, a store into its mapping could
    wait for the disk, and the event loop with it.
    """
    try:
        return os.memfd_create(f"quire-{name}")
    except (AttributeError, OSError):  # not Linux, or forbidden
        path = directory / f"worker.{name}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
