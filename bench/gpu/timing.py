"""Times on the device, and the two limits that they are compared with."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from dataclasses import dataclass

import torch

# Use different inputs in turn until their total size exceeds any cache.
CACHE_BYTES = 256 << 20
# How long the device is kept busy before the timed span, so that the host's launch is over when the
# span begins: half a millisecond at 2 GHz.
_HEAD_START_CYCLES = 1_000_000


@dataclass(frozen=True)
class Ceilings:
    """``bandwidth``: bytes read and written per second; ``flops``: of bfloat16 products."""

    bandwidth: float
    flops: float

    def floor(self, *, moved: float = 0, computed: float = 0) -> float:
        """Return the least time to move that many bytes and compute that many operations."""
        return max(moved / self.bandwidth, computed / self.flops)


@dataclass(frozen=True)
class Machine:
    """What rows run on. ``dry``: through the interpreter on a CPU, with tiny sizes: it shows that
    every row runs, and its times mean nothing."""

    device: torch.device
    ceilings: Ceilings
    dry: bool = False

    def size(self, full: int, dry: int) -> int:
        return dry if self.dry else full

    def seconds(self, calls: Items[Callable[[], object]], *, rounds: int = 20) -> float:
        return seconds(calls, self.device, rounds=rounds)

    def copies(self, size: int) -> int:
        """Return how many inputs of ``size`` bytes to use in turn."""
        return 1 if self.dry else max(1, min(64, -(-CACHE_BYTES // size)))


def seconds(calls: Items[Callable[[], object]], device: torch.device, *, rounds: int = 20) -> float:
    """Return the median time of one call. ``calls`` do the same with inputs at different addresses;
    a graph of all of them is replayed, and launched before the timed span, so that the host's speed
    does not matter. On a CPU each is called once."""
    if device.type != "cuda":
        return statistics.median(_host_seconds(call) for call in calls)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    return statistics.median(_replay_seconds(graph) for _ in range(rounds)) / len(calls)


def _host_seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda._sleep(_HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def measure_ceilings(device: torch.device) -> Ceilings:
    small = device.type != "cuda"
    source = torch.randn(1 << (16 if small else 29), device=device)
    target = torch.empty_like(source)
    copying = seconds([lambda: target.copy_(source)], device)
    side = 64 if small else 8192
    a, b = torch.randn(2, side, side, device=device, dtype=torch.bfloat16)
    multiplying = seconds([lambda: torch.mm(a, b)], device, rounds=10)
    return Ceilings(2 * source.nbytes / copying, 2 * side**3 / multiplying)


@dataclass
class Waits:
    """How often the host has waited for the device."""

    count: int = 0


@contextmanager
def counted_waits(device: torch.device) -> Iterator[Waits]:
    """Count what makes the host wait for a GPU, as torch reports it; reads of events do not count.
    On a CPU nothing does."""
    waits = Waits()
    if device.type != "cuda":
        yield waits
        return
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits.count = sum("synchronizing" in str(each.message) for each in seen)
