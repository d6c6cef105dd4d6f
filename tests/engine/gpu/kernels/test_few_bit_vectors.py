"""Products of one to four rows with weights of few bits equal float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.gpu.kernels import few_bit_vectors as module
from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
from engine.gpu.kernels.launch import (
    FEW_BIT_ROW,
    FEW_ROWS,
    INTERPRETED,
    VectorTiles,
    vector_tiles,
)
from engine.gpu.kernels.skinny import Norm
from engine.model.layers import ACTIVATIONS
from tests.engine.gpu.kernels.fetching import lines_of, requests
from tests.engine.gpu.kernels.few_bit_weights import KINDS, Kind, with_scales_in

EPS = 1e-5
# Levels are several times as large as the weights, so that a sum loses some digits.
TOLERANCES = {torch.float32: 5e-5, torch.bfloat16: 1.5e-2}
# Four bits and a zero point for each group, which takes every part of the kernel.
FOUR = Kind(4, 64, has_zeros=True)


def close(found: Tensor, exact: Tensor) -> None:
    tolerance = TOLERANCES[found.dtype] * float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)


def normed(x: Tensor, gain: Tensor) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * gain.double()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1024, 8), (2, 300, 13), (3, 1100, 5)])
def test_each_kind_of_weight(
    device: torch.device, kind: Kind, rows: int, inputs: int, outputs: int
) -> None:
    torch.manual_seed(rows)
    weight, exact = kind.weight(outputs, inputs, device)
    x = torch.randn(rows, inputs, device=device)
    close(few_bit_vectors(x, weight), x.double() @ exact.T)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rows", range(1, FEW_ROWS + 1))
def test_with_bias_and_after_a_norm(device: torch.device, dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(rows)
    weight, exact = FOUR.weight(20, 600, device)
    x = torch.randn(rows, 600, device=device).to(dtype)
    bias, gain = torch.randn(20, device=device).to(dtype), torch.randn(600, device=device).to(dtype)
    found = few_bit_vectors(x, weight, bias, norm=Norm(gain, EPS))
    close(found, normed(x, gain) @ exact.T + bias.double())


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 3])
def test_gated_after_a_norm(device: torch.device, dtype: torch.dtype, name: str, rows: int) -> None:
    torch.manual_seed(5)
    weight, exact = FOUR.weight(2 * 11, 512, device)
    x = torch.randn(rows, 512, device=device).to(dtype)
    gain = (torch.randn(512, device=device) * 0.1).to(dtype)
    bias = torch.randn(2 * 11, device=device).to(dtype)
    gate, up = (normed(x, gain) @ exact.T + bias.double()).chunk(2, dim=-1)
    found = few_bit_vectors(x, weight, bias, norm=Norm(gain, EPS), activation=name)
    close(found, ACTIVATIONS[name](gate.clone()) * up)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_added_to_the_residual_in_place(
    device: torch.device, dtype: torch.dtype, rows: int
) -> None:
    torch.manual_seed(6)
    weight, matrix = FOUR.weight(24, 512, device)
    x = torch.randn(rows, 512, device=device).to(dtype)
    residual = torch.randn(rows, 24, device=device).to(dtype)
    exact = residual.double() + x.double() @ matrix.T
    assert few_bit_vectors(x, weight, residual=residual) is residual
    close(residual, exact)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_of_each_type(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    weight, exact = FOUR.weight(9, 512, device)
    x = torch.randn(1, 512, device=device)
    close(few_bit_vectors(x, with_scales_in(weight, dtype)), x.double() @ exact.T)


@pytest.mark.parametrize(
    "tiles", [VectorTiles(1, 32, 4), VectorTiles(4, 32, 2), VectorTiles(2, 16, 4)], ids=str
)
@pytest.mark.parametrize("turns_first", [False, True])
def test_other_tiles_in_either_order(
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    tiles: VectorTiles,
    *,
    turns_first: bool,
) -> None:
    monkeypatch.setattr(module, "_TURNS_FIRST", turns_first)
    torch.manual_seed(8)
    weight, exact = FOUR.weight(22, 1200, device)
    x = torch.randn(2, 1200, device=device)
    sums = x.double() @ exact.T
    close(few_bit_vectors(x, weight, tiles=tiles), sums)
    gain = torch.randn(1200, device=device)
    found = few_bit_vectors(x, weight, norm=Norm(gain, EPS), activation="silu", tiles=tiles)
    gate, up = (normed(x, gain) @ exact.T).chunk(2, dim=-1)
    close(found, ACTIVATIONS["silu"](gate.clone()) * up)


@pytest.mark.skipif(not INTERPRETED, reason="kernels run on a GPU here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("activation", ["", "silu"])
@pytest.mark.parametrize("groups", [1, 150])
def test_it_requests_early_scales_and_zero_points_and_nothing_beyond(
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    activation: str,
    groups: int,
) -> None:
    requested = requests(monkeypatch, module)
    weight = with_scales_in(Kind(8, has_zeros=True).weight(22, groups * 32, device)[0], dtype)
    assert weight.zeros is not None
    few_bit_vectors(torch.zeros(1, groups * 32, device=device), weight, activation=activation)
    for half, tensor in enumerate((weight.scales, weight.zeros)):
        found = {line for program in requested[half::2] for line in program}
        assert set(lines_of(tensor)) <= found
        size = tensor.itemsize
        assert found <= set(range(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, size))


@pytest.mark.parametrize("options", [{}, {"activation": "silu"}], ids=["plain", "gated"])
def test_rows_may_be_apart_and_not_too_many(device: torch.device, options: Any) -> None:
    torch.manual_seed(9)
    weight, exact = FOUR.weight(8, 256, device)
    wide = torch.randn(FEW_ROWS + 1, 300, device=device)
    x = wide[:2, 20:276]
    sums = x.double() @ exact.T
    if options:
        gate, up = sums.chunk(2, dim=-1)
        sums = ACTIVATIONS["silu"](gate.clone()) * up
    close(few_bit_vectors(x, weight, **options), sums)
    with pytest.raises(ValueError, match="at most 4"):
        few_bit_vectors(wide[:, :256], weight)


def test_the_table_decides_for_one_row_of_the_sizes_in_it() -> None:
    for (bits, inputs, outputs, *own), tiles in FEW_BIT_ROW.items():
        group = own[0] if own else 32
        assert vector_tiles(1, inputs, outputs, bits, group) is tiles
        assert vector_tiles(2, inputs, outputs, bits, group) is not tiles


def test_an_entry_of_one_group_goes_before_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    own, of_all = VectorTiles(2, 64, 2), FEW_BIT_ROW[4, 4096, 6144]
    monkeypatch.setitem(FEW_BIT_ROW, (4, 4096, 6144, 128), own)
    assert vector_tiles(1, 4096, 6144, 4, 128) is own
    for group in (32, 64):
        assert vector_tiles(1, 4096, 6144, 4, group) is of_all


@pytest.mark.parametrize(
    ("bits", "inputs", "outputs", "tiles"),
    [
        # Nearly sizes of the table, and nearly its tiles.
        (4, 4096, 6160, VectorTiles(4, 128, 4)),
        (4, 14336, 4112, VectorTiles(4, 64, 4)),
        (8, 4096, 6144, VectorTiles(4, 128, 4)),
        # Smaller ones: no lane without inputs, no fewer programs than among the table's.
        (4, 2048, 28672, VectorTiles(4, 64, 4)),
        (4, 1024, 4096, VectorTiles(2, 32, 4)),
        (8, 1024, 1024, VectorTiles(1, 64, 4)),
        (4, 1000, 100, VectorTiles(1, 32, 4)),
    ],
)
def test_one_row_of_other_sizes(bits: int, inputs: int, outputs: int, tiles: VectorTiles) -> None:
    assert (bits, inputs, outputs) not in {key[:3] for key in FEW_BIT_ROW}
    assert vector_tiles(1, inputs, outputs, bits, 32) == tiles
