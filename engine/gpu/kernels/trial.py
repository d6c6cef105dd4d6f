"""The smallest kernels, run once to find out whether kernels can be compiled at all, and whether
they may start early."""

import torch
import triton
import triton.language as tl

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch

_CHAIN = 64


@triton.jit
def _one(out):
    tl.store(out, 1)


def run_trial(device: torch.device) -> None:
    """Compile and run it. Raises whatever triton, the compiler or the driver raises."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    _one[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel ran, but wrote nothing")


@triton.jit(do_not_specialize=["place"])
def _next_one(numbers, place, EARLY: tl.constexpr):
    await_inputs(EARLY)
    tl.store(numbers + place + 1, tl.load(numbers + place) + 1)


def run_chain(device: torch.device) -> None:
    """Run kernels each of which needs the one before, launched one by one and from a CUDA graph.
    Between them is what may be between those of a layer: nothing, copies, and work on another
    stream, as NCCL's is. Raises RuntimeError if the order was not kept, and whatever else is
    raised."""
    numbers = torch.zeros(_CHAIN + 1, dtype=torch.int32, device=device)
    spare = torch.zeros_like(numbers)
    side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def chain() -> None:
        for place in range(_CHAIN):
            _next_one[(1,)](numbers, place, **early_launch())
            if place % 4 == 2:
                spare.copy_(numbers)
                numbers.copy_(spare)
            elif place % 4 == 3 and side is not None:
                side.wait_stream(torch.cuda.current_stream(device))
                with torch.cuda.stream(side):
                    numbers.add_(0)
                torch.cuda.current_stream(device).wait_stream(side)

    runs = [chain]
    chain()  # compiles, which cannot be recorded
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        # NCCL's own thread may query events at the same time, which "global" forbids.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            chain()
        runs.append(graph.replay)
    for run in runs:
        numbers.zero_()
        run()
        if numbers.tolist() != list(range(_CHAIN + 1)):
            raise RuntimeError("kernels that start early overtake those before them")
