"""The names of the blocks in an engine's prefix cache, in memory shared with API workers.

With several engines, a worker sends a request to the engine that has most of its prompt cached.
The engine adds and removes names as its cache changes; workers look them up at any time without a
lock. Only a name's first eight bytes are kept, its fingerprint.

A file holds a header and a hash table of uint64 with linear probing, at most half full; 0 is empty.
Each number is written at once, and only by the engine. A reader may miss a name while the engine
moves it, and finds one that is not there with a chance of about ``num_blocks`` in 2**64. Either
costs a request some cache hits, nothing else.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

_MAGIC = 0x3153454D414E4B42  # "BKNAMES1"
_HEADER = struct.Struct("=4Q")  # magic, block size, slots, 0
_WORD = 8
_SLOT_COUNT_LIMIT = 1 << 32
_fingerprint = struct.Struct("=Q").unpack_from


def prefix_table_path(socket_path: Path) -> Path:
    """Return where the engine on this socket has its table."""
    return socket_path.with_suffix(".prefixes")


class PrefixTableWriter:
    """An engine's table, for a cache of ``num_blocks``. Raises OSError if it cannot be created.
    Readers that have the table of an engine before it open keep that."""

    def __init__(self, path: Path, num_blocks: int, block_size: int) -> None:
        slots = 1 << max(3, (2 * num_blocks - 1).bit_length())
        header = _HEADER.pack(_MAGIC, block_size, slots, 0)
        draft = path.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600)
        try:
            # Not just resized: on a full disk, writing to a hole would kill the process.
            os.posix_fallocate(descriptor, 0, _HEADER.size + slots * _WORD)
            os.pwrite(descriptor, header, 0)
            memory = mmap.mmap(descriptor, _HEADER.size + slots * _WORD)
        finally:
            os.close(descriptor)
        os.rename(draft, path)
        self._slots = memoryview(memory)[_HEADER.size :].cast("Q")
        self._mask = slots - 1
        self._most = slots // 2
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: bytes) -> None:
        """Add a name that is not in the table."""
        if self._count >= self._most:
            return  # so that a search always ends
        (key,) = _fingerprint(name)
        key = key or 1
        slots, mask = self._slots, self._mask
        at = key & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = key
        self._count += 1

    def remove(self, name: bytes) -> None:
        """Remove a name, if it is there."""
        (key,) = _fingerprint(name)
        key = key or 1
        slots, mask = self._slots, self._mask
        at = key & mask
        while (found := slots[at]) != key:
            if not found:
                return
            at = (at + 1) & mask
        self._count -= 1
        # Move back later ones that would not be found any longer across an empty slot.
        after = at
        while found := slots[after := (after + 1) & mask]:
            if (after - (found & mask)) & mask >= (after - at) & mask:
                slots[at] = found  # copied before it is overwritten: a reader finds it in between
                at = after
        slots[at] = 0


class PrefixTableReader:
    """Another process's view of a table. Raises OSError or ValueError if there is none that can be
    read."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = os.pread(descriptor, _HEADER.size, 0)
            if len(header) < _HEADER.size:
                raise ValueError(f"{path} does not hold block names")
            magic, block_size, slots, _ = _HEADER.unpack(header)
            if magic != _MAGIC or not 0 < slots <= _SLOT_COUNT_LIMIT or slots & (slots - 1):
                raise ValueError(f"{path} does not hold block names")
            size = _HEADER.size + slots * _WORD
            memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        self.block_size: int = block_size
        self._slots = memoryview(memory)[_HEADER.size :].cast("Q")
        self._mask: int = slots - 1

    def __contains__(self, name: bytes) -> bool:
        (key,) = _fingerprint(name)
        key = key or 1
        slots, mask = self._slots, self._mask
        at = key & mask
        # Bounded, as the engine may move names while this looks.
        for _ in range(mask + 1):
            found = slots[at]
            if found == key:
                return True
            if not found:
                return False
            at = (at + 1) & mask
        return False
