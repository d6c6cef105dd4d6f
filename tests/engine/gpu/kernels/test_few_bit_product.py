"""Products of any number of rows with weights of few bits equal float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.gpu.kernels import few_bit_product as module
from engine.gpu.kernels.few_bit_product import few_bit_product
from engine.gpu.kernels.launch import FEW_BIT_PRODUCT
from tests.engine.gpu.kernels.few_bit_weights import KINDS, Kind, with_scales_in

TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 1.5e-2}
FOUR = Kind(4, 64, has_zeros=True)


def close(found: Tensor, exact: Tensor) -> None:
    tolerance = TOLERANCES[found.dtype] * float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(5, 256, 70), (20, 300, 13)])
@pytest.mark.parametrize("shares", [1, 2])
def test_each_kind_of_weight(
    device: torch.device, kind: Kind, rows: int, inputs: int, outputs: int, shares: int
) -> None:
    torch.manual_seed(rows)
    weight, exact = kind.weight(outputs, inputs, device)
    x = torch.randn(rows, inputs, device=device)
    close(few_bit_product(x, weight, shares=shares), x.double() @ exact.T)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shares", [None, 1, 3])
def test_with_bias(device: torch.device, dtype: torch.dtype, shares: int | None) -> None:
    torch.manual_seed(1)
    weight, exact = FOUR.weight(40, 1000, device)
    x, bias = torch.randn(17, 1000, device=device), torch.randn(40, device=device)
    x, bias = x.to(dtype), bias.to(dtype)
    close(few_bit_product(x, weight, bias, shares=shares), x.double() @ exact.T + bias.double())


def test_shared_sums_leave_their_counters_at_zero(device: torch.device) -> None:
    torch.manual_seed(2)
    weight, exact = FOUR.weight(200, 1024, device)
    x = torch.randn(33, 1024, device=device)
    for shares in (4, 2, 4):
        close(few_bit_product(x, weight, shares=shares), x.double() @ exact.T)


@pytest.mark.parametrize("rows", FEW_BIT_PRODUCT)
def test_each_entry_of_the_table(device: torch.device, rows: int) -> None:
    torch.manual_seed(rows)
    weight, exact = FOUR.weight(130, 256, device)
    x = torch.randn(rows + 1, 256, device=device)
    close(few_bit_product(x, weight, tiles=FEW_BIT_PRODUCT[rows]), x.double() @ exact.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_of_each_type(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    weight, exact = FOUR.weight(9, 512, device)
    x = torch.randn(6, 512, device=device)
    close(few_bit_product(x, with_scales_in(weight, dtype)), x.double() @ exact.T)


def test_many_rows_are_multiplied_by_torch(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CONVERTED_ROWS", 4)
    torch.manual_seed(4)
    weight, exact = FOUR.weight(30, 300, device)
    x, bias = torch.randn(5, 300, device=device), torch.randn(30, device=device)
    close(few_bit_product(x, weight, bias), x.double() @ exact.T + bias.double())


def test_rows_may_be_apart(device: torch.device) -> None:
    torch.manual_seed(5)
    weight, exact = FOUR.weight(8, 256, device)
    x = torch.randn(7, 300, device=device)[:, 20:276]
    close(few_bit_product(x, weight), x.double() @ exact.T)


@pytest.mark.parametrize(
    ("programs", "blocks", "shares"), [(448, 16, 1), (64, 16, 4), (64, 56, 8), (8, 2, 1)]
)
def test_inputs_are_shared_where_programs_are_few(programs: int, blocks: int, shares: int) -> None:
    """Of a device with 132 multiprocessors; products of Llama-8B first."""
    assert module._shares(programs, blocks, 132) == shares
