"""The repaired interpreter rounds as a GPU does, and loops up to what it has loaded."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from engine.gpu.kernels.launch import INTERPRETED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="kernels run on a GPU here")


@triton.jit
def _convert(values, out, count: tl.constexpr):
    places = tl.arange(0, count)
    tl.store(out + places, tl.load(values + places).to(out.dtype.element_ty))


@triton.jit
def _sum_up_to(bound, out):
    total = 0
    for number in range(0, tl.load(bound)):
        total += number
    tl.store(out, total)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_floats_are_rounded_to_nearest_as_torch_does(dtype: torch.dtype) -> None:
    """Ties among them, and mantissas that carry over into the exponent."""
    chance = torch.Generator().manual_seed(0)
    special = [1.00390625, 1.01171875, 1.9999, 15.9, 0.0, -0.0, 1.0625, 1.1875, 447.0, -3.999]
    values = torch.cat([torch.tensor(special), torch.randn(512 - len(special), generator=chance)])
    out = torch.empty(512, dtype=dtype)
    _convert[(1,)](values, out, 512)
    assert torch.equal(out.float(), values.to(dtype).float())


@pytest.mark.parametrize("bound", [0, 1, 10])
def test_a_loop_runs_up_to_a_number_that_was_loaded(bound: int) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    _sum_up_to[(1,)](torch.tensor([bound], dtype=torch.int32), out)
    assert out.item() == sum(range(bound))
