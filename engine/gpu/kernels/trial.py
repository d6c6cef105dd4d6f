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
    Raises RuntimeError if the order was not kept, and whatever else is raised."""
    numbers = torch.zeros(_CHAIN + 1, dtype=torch.int32, device=device)

    def chain() -> None:
        for place in range(_CHAIN):
            _next_one[(1,)](numbers, place, **early_launch())

    runs = [chain]
    chain()  # compiles, which cannot be recorded
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain()
        runs.append(graph.replay)
    for run in runs:
        numbers.zero_()
        run()
        if numbers.tolist() != list(range(_CHAIN + 1)):
            raise RuntimeError("kernels that start early overtake those before them")
