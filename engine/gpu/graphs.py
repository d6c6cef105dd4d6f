"""Steps of fixed shape, recorded once as CUDA graphs and replayed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch

GraphStep = Callable[[int], None]

_FINE = (1, 2, 4, 8)
_COARSE = 16


def padded_sizes(largest: int) -> list[int]:
    """Batch sizes to have steps for: 1, 2, 4, 8, then multiples of 16, up to ``largest`` or the
    next above."""
    sizes = [size for size in _FINE if size < largest]
    coarse = range(_COARSE, largest + _COARSE, _COARSE) if largest > _FINE[-1] else ()
    return [*sizes, *coarse] if coarse else [*sizes, largest]


def graph_replay(step: GraphStep, sizes: Items[int], device: torch.device) -> GraphStep:
    """``step`` itself, or on a GPU the replay of what it did once for each of ``sizes``.

    ``step(size)`` must read and write the same memory whenever it is called, and do no harm when
    called to warm up. Largest first: the smaller ones then fit into the memory of the larger.
    """
    if device.type != "cuda":
        return step
    graphs: dict[int, torch.cuda.CUDAGraph] = {}
    pool = torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for size in sorted(sizes, reverse=True):
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            step(size)  # compiles kernels and sets up libraries, which no graph may record
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step(size)
        graphs[size] = graph
    # What the steps to warm up left on that stream is of no use to any other.
    torch.cuda.empty_cache()
    return lambda size: graphs[size].replay()
