"""Steps of fixed shape, recorded once as CUDA graphs and replayed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import NamedTuple, TypeAlias

import torch

from engine.sharding.collectives import ALONE, Collectives

GraphPool: TypeAlias = "torch.cuda._POOL_HANDLE"
GraphStep = Callable[[int], None]

_FINE = (1, 2, 4, 8)
_COARSE = 16
# Up to each number of tokens, the multiples in which steps are recorded.
_TOKEN_STEPS = ((512, 64), (1024, 128))


class RecordedGraph(NamedTuple):
    """``calls``: of collectives in it."""

    graph: torch.cuda.CUDAGraph
    calls: int


def padded_sizes(largest: int) -> list[int]:
    """Return the batch sizes to prepare steps for: 1, 2, 4, 8, then multiples of 16, up to
    ``largest`` or the next size above it."""
    sizes = [size for size in _FINE if size < largest]
    coarse = range(_COARSE, largest + _COARSE, _COARSE) if largest > _FINE[-1] else ()
    return [*sizes, *coarse] if coarse else [*sizes, largest]


def token_sizes(largest: int) -> list[int]:
    """Return the numbers of tokens to prepare steps with parts of prompts for: 16, 32, 64, then
    multiples of 64 to 512 and of 128 beyond, up to ``largest`` or the next size above it. Up to
    some 200 tokens, a device reads weights for longer than it computes, so padding is free; above,
    it costs at most a quarter more."""
    sizes = [16, 32]
    for end, step in _TOKEN_STEPS:
        sizes += range(sizes[-1] // step * step + step, end + 1, step)
    if largest > sizes[-1]:
        raise ValueError(f"steps of {largest} tokens are not recorded")
    return sizes[: bisect_left(sizes, largest) + 1]


def new_pool(device: torch.device) -> GraphPool | None:
    """Return memory for graphs that are replayed one after another only; None on a CPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.graph_pool_handle()


def graph_replays(
    steps: Items[GraphStep],
    sizes: Items[int],
    device: torch.device,
    *,
    pool: GraphPool | None = None,
    collectives: Collectives = ALONE,
) -> list[GraphStep]:
    """Return ``steps`` themselves, or on a GPU steps that replay a recording of each for each of
    ``sizes``.

    ``step(size)`` must read and write the same memory on every call, and be harmless when called
    to warm up. The largest size comes first, so that smaller ones fit into its memory. All share
    it, and with others the ``pool``, if given: they may only be replayed one after another, and
    what one leaves for another must be outside. All ranks of ``collectives`` record the same.
    """
    if device.type != "cuda":
        return [*steps]
    recorded: list[dict[int, RecordedGraph]] = [{} for _ in steps]
    # NCCL's own thread queries the state of earlier calls, which "global" forbids.
    mode = "global" if collectives.shard.size == 1 else "thread_local"
    pool = new_pool(device) if pool is None else pool
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for size in sorted(sizes, reverse=True):
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for step in steps:
                step(size)  # compiles kernels and initialises libraries, which cannot be recorded
        torch.cuda.current_stream(device).wait_stream(stream)
        for step, graphs in zip(steps, recorded, strict=True):
            graph = torch.cuda.CUDAGraph()
            before = collectives.calls
            with torch.cuda.graph(graph, pool=pool, capture_error_mode=mode):
                step(size)
            graphs[size] = RecordedGraph(graph, collectives.calls - before)
    # Free what the warm-up cached for that stream: no other stream can use it.
    torch.cuda.empty_cache()
    return [_replaying(graphs, collectives) for graphs in recorded]


def _replaying(graphs: dict[int, RecordedGraph], collectives: Collectives) -> GraphStep:
    if collectives.shard.size == 1:
        return lambda size: graphs[size].graph.replay()

    def replay(size: int) -> None:
        recording = graphs[size]
        collectives.replayed(recording.calls)
        recording.graph.replay()

    return replay
