"""The C library's heap."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Return the heap's free pages to the system, which glibc otherwise keeps where a block after
    them is in use; with another C library, do nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return
    trim(0)
