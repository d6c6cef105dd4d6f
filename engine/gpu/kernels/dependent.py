"""Programmatic dependent launch: a kernel's programs start while those of the kernel before it
still run, fetch what does not depend on that kernel, and wait for its end before anything else.

For whole layers to stay in order, every program of a kernel that is launched so must wait, even one
without work: a kernel ends when all its programs have waited, so those after it need not know of
the kernels before. Needs compute capability 9.0; elsewhere, and through the interpreter, kernels
are compiled without.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def await_inputs(EARLY: tl.constexpr):
    """Let the next kernel start, and wait until all that earlier kernels have written is visible.
    Nothing that a kernel writes may be read before, nothing that it reads be written."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def start_next(EARLY: tl.constexpr):
    """Let the next kernel start, in one that has itself been launched after the end of those before
    it."""
    if EARLY:
        gdc_launch_dependents()
