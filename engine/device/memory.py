"""Measures what a device's memory is used for, and explains when there is not enough.

On a GPU the KV cache gets the memory left by everything else, so this is measured before it is
allocated: the largest step, and the CUDA graphs, which are recorded once for trial over a cache of
two blocks. A graph's memory depends on its batch size and on the longest sequence, not on the
cache's size, so the final graphs take as much as those of the trial. Permanent allocations of the
trial (compiled kernels, libraries' workspaces) are counted twice: some tens of MiB, to be safe.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from engine.architecture.errors import ModelError

_GIB = 1 << 30
# Messages of CUDA, of its libraries, and of torch's allocator on a CPU.
_MESSAGES = ("out of memory", "ALLOC_FAILED", "can't allocate memory")


class OutOfMemoryError(ModelError):
    """The device's memory is insufficient; the message says for what, and what to lower."""


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """In bytes. ``free``: with the weights loaded and all one-time setup of steps done. ``step``:
    needed by the largest step. ``graphs``: needed by all CUDA graphs together."""

    total: int
    free: int
    step: int
    graphs: int

    def for_blocks(self, utilization: float) -> int:
        """Return the bytes for the KV cache, if the share ``utilization`` of ``total`` may be used;
        negative if there is too little for the rest. Steps without graphs need additional memory,
        because memory that graphs were recorded with is reserved for them."""
        kept_free = self.total - int(self.total * utilization)
        return self.free - kept_free - self.step - self.graphs

    def __str__(self) -> str:
        used = self.total - self.free
        parts = [
            f"{gib(self.total)} in all",
            f"{gib(used)} taken by the weights and everything else",
            f"{gib(self.step)} for the largest step",
        ]
        if self.graphs:
            parts.append(f"{gib(self.graphs)} for CUDA graphs")
        return ", ".join(parts)


def profiled(
    device: torch.device,
    prepare: Callable[[], Callable[[], None]],
    record: Callable[[], object] | None,
) -> MemoryProfile:
    """Run the largest step, which ``prepare`` returns, and ``record`` the graphs (None: no graphs);
    both are dropped again. What the preparation takes is not counted with the step."""
    step = prepare()
    taken_by_step = peak_of(device, step)
    del step
    taken_by_graphs = 0 if record is None else taken_while_kept(device, record)
    free, total = free_and_total(device)
    return MemoryProfile(total=total, free=free, step=taken_by_step, graphs=taken_by_graphs)


def peak_of(device: torch.device, work: Callable[[], None]) -> int:
    """Return the additional bytes that torch reserves on the device while ``work`` runs."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    # Reserved, not allocated: memory that is idle between allocations is unavailable to others too.
    return torch.cuda.max_memory_reserved(device) - before


def taken_while_kept(device: torch.device, make: Callable[[], object]) -> int:
    """Return the bytes of device memory used while the result of ``make`` is kept, including the
    driver's share of a graph, which torch does not know."""
    before, _ = free_and_total(device)
    kept = make()
    after, _ = free_and_total(device)
    del kept
    return max(0, before - after)


def free_and_total(device: torch.device) -> tuple[int, int]:
    """Return the bytes free and in total, after emptying torch's cache."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return free, total


@contextmanager
def explaining(device: torch.device, purpose: str, advice: str) -> Iterator[None]:
    """Raise OutOfMemoryError in place of torch's errors for insufficient device memory.
    ``purpose``: what it was for, and how much if known; ``advice``: what to change."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"{device} has too little memory for {purpose}{_state(device)}; {advice}"
        ) from error


def is_out_of_memory(raised: BaseException) -> bool:
    """True if running out of memory is the cause of ``raised``. An aborted recording ends in a
    different error than the one that caused it."""
    error: BaseException | None = raised
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _MESSAGES):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:  # of mmap
            return True
        error = error.__cause__ or error.__context__
    return False


def gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"


def _state(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # an aborted recording may leave a device that does not respond
        return ""
    own = torch.cuda.memory_allocated(device)
    return f" ({gib(free)} of {gib(total)} are free, this process's tensors take {gib(own)})"
