"""Times on the device, and the two limits that they are compared with."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

# Use different inputs in turn until their total size exceeds any cache.
CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class Ceilings:
    """``bandwidth``: bytes read and written per second; ``flops``: of bfloat16 products."""

    bandwidth: float
    flops: float

    def floor(self, *, moved: float = 0, computed: float = 0) -> float:
        """Return the least time to move that many bytes and compute that many operations."""
        return max(moved / self.bandwidth, computed / self.flops)


def seconds(calls: Items[Callable[[], object]], *, rounds: int = 20) -> float:
    """Return the median time of one call. ``calls`` do the same with inputs at different addresses;
    a graph of all of them is replayed, so that the host's speed does not matter."""
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


def _replay_seconds(graph: torch.cuda.CUDAGraph) -> float:
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def copies(size: int) -> int:
    """Return how many inputs of ``size`` bytes to use in turn."""
    return max(1, min(64, -(-CACHE_BYTES // size)))


def measure_ceilings() -> Ceilings:
    return Ceilings(_copy_bandwidth(), _product_rate())


def _copy_bandwidth() -> float:
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds([lambda: target.copy_(source)])


def _product_rate() -> float:
    side = 8192
    a, b = torch.randn(2, side, side, device="cuda", dtype=torch.bfloat16)
    return 2 * side**3 / seconds([lambda: torch.mm(a, b)], rounds=10)
