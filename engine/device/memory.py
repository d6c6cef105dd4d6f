"""What a device's memory is spent on, and what is said when there is not enough.

On a GPU the KV cache is given what the other things leave, so these are measured before it is made:
the largest step, and the CUDA graphs, which are recorded once for trial over a cache of two blocks.
A graph's memory depends on its batch size and on the longest sequence, not on the cache's size, so
the graphs to be kept take what those of the trial took. What the trial leaves behind for good
(compiled kernels, libraries' workspaces) counts twice: some tens of MiB, on the safe side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from engine.architecture.errors import ModelError

_GIB = 1 << 30
# Of CUDA, of its libraries, and of torch's allocator on a CPU.
_MESSAGES = ("out of memory", "ALLOC_FAILED", "can't allocate memory")


class OutOfMemoryError(ModelError):
    """The device's memory does not suffice; the message says for what, and what to lower."""


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """Bytes. ``free``: with the weights there, and everything set up that steps set up once.
    ``step``: of the largest step. ``graphs``: of all CUDA graphs together."""

    total: int
    free: int
    step: int
    graphs: int

    def for_blocks(self, utilization: float) -> int:
        """Bytes for the KV cache, if of ``total`` the share ``utilization`` may be filled; below
        zero where there is too little for the rest. Steps beside the graphs keep room of their
        own: memory that graphs were recorded with is theirs alone."""
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
    device: torch.device, step: Callable[[], None], record: Callable[[], object] | None
) -> MemoryProfile:
    """Run the largest ``step``, and ``record`` the graphs (None: there are none); they are dropped
    again."""
    taken_by_step = peak_of(device, step)
    taken_by_graphs = 0 if record is None else taken_while_kept(device, record)
    free, total = free_and_total(device)
    return MemoryProfile(total=total, free=free, step=taken_by_step, graphs=taken_by_graphs)


def peak_of(device: torch.device, work: Callable[[], None]) -> int:
    """Bytes that torch takes of the device while ``work`` runs, beyond those it has."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    # Reserved, not allocated: what lies idle between allocations is not there for others either.
    return torch.cuda.max_memory_reserved(device) - before


def taken_while_kept(device: torch.device, make: Callable[[], object]) -> int:
    """Bytes that the device lacks while what ``make`` returns is kept, the driver's share of a
    graph included, of which torch does not know."""
    before, _ = free_and_total(device)
    kept = make()
    after, _ = free_and_total(device)
    del kept
    return max(0, before - after)


def free_and_total(device: torch.device) -> tuple[int, int]:
    """Bytes, with nothing kept by torch for later."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return free, total


@contextmanager
def explaining(device: torch.device, purpose: str, advice: str) -> Iterator[None]:
    """Raises OutOfMemoryError in place of what torch raises for lack of the device's memory.
    ``purpose``: what it was for, and how much if that is known; ``advice``: what to change."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"{device} has too little memory for {purpose}{_state(device)}; {advice}"
        ) from error


def is_out_of_memory(raised: BaseException) -> bool:
    """Whether that is what ``raised`` comes from. A recording that breaks off ends in another
    error than the one that broke it."""
    error: BaseException | None = raised
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _MESSAGES):
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
    except RuntimeError:  # a recording that broke off may leave a device that answers nothing
        return ""
    own = torch.cuda.memory_allocated(device)
    return f" ({gib(free)} of {gib(total)} are free, this process's tensors take {gib(own)})"
