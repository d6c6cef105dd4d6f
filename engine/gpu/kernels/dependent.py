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


@triton.jit
def fetch_early(
    weight, columns, stride, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, SPAN: tl.constexpr
):
    """Ask for the first ``SPAN`` elements of the rows ``columns`` of a weight, whose rows are
    ``stride`` apart, so that they are in the L2 cache when they are read."""
    LINE: tl.constexpr = 128 * 8 // weight.dtype.element_ty.primitive_bitwidth
    starts = tl.minimum(tl.arange(0, SPAN // LINE) * LINE, INPUTS - 1)
    rows = tl.minimum(columns, OUTPUTS - 1).to(tl.int64)
    places = weight + rows[:, None] * stride + starts[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; // dummy $0",
        "=r,l",
        [places.to(tl.int64, bitcast=True)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
