"""This machine's limits: bytes read and operations per second."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.device.device import cpu_has_bfloat16

# Far larger than any last-level cache.
READ_BYTES = 512 << 20
SIZE = 1024
REPEATS = 3


@dataclass(frozen=True)
class Limits:
    """Bytes read per second; operations per second of torch's matrix product in float32, and in
    bfloat16 where the CPU has such products (0: it has not)."""

    read: float
    float32: float
    bfloat16: float = 0.0


class Machine:
    def __init__(self) -> None:
        memory = mmap.mmap(-1, READ_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self._values = torch.frombuffer(memory, dtype=torch.float32).fill_(1)
        self._a, self._b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)

    def limits(self, threads: int) -> Limits:
        torch.set_num_threads(threads)
        product = _best_seconds(lambda: torch.mm(self._a, self._b))
        read = _best_seconds(self._values.sum)
        small = 0.0
        if cpu_has_bfloat16():
            a, b = self._a.bfloat16(), self._b.bfloat16()
            small = 2 * SIZE**3 / _best_seconds(lambda: torch.mm(a, b))
        return Limits(READ_BYTES / read, 2 * SIZE**3 / product, small)


def _best_seconds(run: Callable[[], object]) -> float:
    best = float("inf")
    run()
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
