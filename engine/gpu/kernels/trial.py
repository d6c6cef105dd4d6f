"""The smallest kernel, run once to find out whether kernels can be compiled at all."""

import torch
import triton
import triton.language as tl


@triton.jit
def _one(out):
    tl.store(out, 1)


def run_trial(device: torch.device) -> None:
    """Compile and run it. Raises whatever triton, the compiler or the driver raises."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    _one[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel ran, but wrote nothing")
