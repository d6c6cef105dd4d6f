"""Memory for packed weights and the KV cache, in huge pages where the system has them.

A step reads every weight once, page after page. With pages of 4 KiB the processor looks up an
address for each of them, and its prefetchers stop at each page's end; with pages of 2 MiB one core
reads a quarter faster on the machine that we measured. A sequence's keys and values lie in blocks
scattered over the KV cache, which takes even more lookups. Where the system gives huge pages only
on request (``/sys/kernel/mm/transparent_hugepage/enabled``: ``madvise``), this module requests
them.
"""

from __future__ import annotations

import math
import mmap
import threading
from contextlib import suppress

import torch
from torch import Tensor

from engine.heap import release_free_memory

HUGE_PAGE = 2 << 20
SLAB = 64 << 20
"""Bytes reserved at a time. Only those in use take memory, in whole pages."""
_LINE = 64  # bytes of a cache line, where tensors begin


class _Slabs:
    """Gives out parts of reserved memory, one after another. A slab is freed when the last of its
    tensors is and it has no room for another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slab: mmap.mmap | None = None
        self._first = self._end = 0  # of the free part: offsets in the slab

    def take(self, size: int) -> tuple[mmap.mmap, int]:
        """Return a slab and the offset of ``size`` bytes in it, which are zeros."""
        size = -(-size // _LINE) * _LINE
        with self._lock:
            if self._slab is None or size > self._end - self._first:
                self._reserve(max(SLAB, -(-size // HUGE_PAGE) * HUGE_PAGE))
            slab, found = self._slab, self._first
            assert slab is not None
            self._first += size
            if self._end - self._first < HUGE_PAGE:
                self._slab = None  # full: it is freed with the last of its tensors
            return slab, found

    def _reserve(self, size: int) -> None:
        # Else stored weights whose memory malloc keeps and the packed ones would be held at once.
        release_free_memory()
        # Not shared, as it is by default: shared memory has a separate switch for huge pages.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        slab = mmap.mmap(-1, size + HUGE_PAGE, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without huge pages
                slab.madvise(mmap.MADV_HUGEPAGE)
        address = torch.frombuffer(slab, dtype=torch.uint8, count=1).data_ptr()
        self._slab, self._first = slab, -address % HUGE_PAGE
        self._end = self._first + size


_slabs = _Slabs()


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of zeros like ``torch.zeros``, in huge pages if possible."""
    count = math.prod(shape)
    if not count:
        return torch.zeros(shape, dtype=dtype)
    slab, offset = _slabs.take(count * dtype.itemsize)
    return torch.frombuffer(slab, dtype=dtype, count=count, offset=offset).view(shape)
