"""Times on the device, and the two ceilings that they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch

# Inputs are taken in turn until they are larger than any cache.
CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class Ceilings:
    """``bandwidth``: bytes read plus bytes written, a second; ``flops``: of bfloat16 products."""

    bandwidth: float
    flops: float

    def floor(self, *, moved: float = 0, computed: float = 0) -> float:
        """Seconds that moving so many bytes and computing so many operations must take."""
        return max(moved / self.bandwidth, computed / self.flops)


def seconds(calls: Items[Callable[[], object]], *, rounds: int = 20) -> float:
    """Median time of one call. ``calls`` do the same on inputs that lie apart; a graph of them
    all is replayed, so that the host's pace does not count."""
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
    """How many inputs of ``size`` bytes to take in turn."""
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
