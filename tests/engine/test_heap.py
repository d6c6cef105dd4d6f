"""Memory that is free in the heap goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

from engine.heap import release_free_memory

_BLOCK = 64 * 1024  # of the heap: larger ones are mapped, and unmapped when they are freed
_BLOCKS = 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_is_free_below_a_block_in_use_is_released() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    blocks = [library.malloc(_BLOCK) for _ in range(_BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, _BLOCK)
    for block in blocks[:-1]:
        library.free(block)
    held = resident_bytes()
    release_free_memory()
    assert held - resident_bytes() > _BLOCK * _BLOCKS * 3 // 4
    library.free(blocks[-1])
