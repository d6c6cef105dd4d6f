"""Products of a few rows with weights of few bits without zero points equal float64."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels import few_bit_dots as module
from engine.gpu.kernels import launch
from engine.gpu.kernels.few_bit_dots import few_bit_dots
from engine.gpu.kernels.few_bit_product import few_bit_product
from engine.gpu.kernels.launch import INTERPRETED, DotTiles, dot_tiles
from tests.engine.gpu.kernels.fetching import lines_of, requests
from tests.engine.gpu.kernels.few_bit_weights import KINDS, Kind, with_scales_in

TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 1.5e-2}
WITHOUT_ZEROS = [kind for kind in KINDS if not kind.has_zeros]
FOUR = Kind(4)


def close(found: torch.Tensor, exact: torch.Tensor) -> None:
    tolerance = TOLERANCES[found.dtype] * float(exact.abs().max())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", WITHOUT_ZEROS, ids=str)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(5, 512, 70), (20, 1100, 13)])
@pytest.mark.parametrize("shares", [1, 3])
def test_each_kind_of_weight(
    device: torch.device, kind: Kind, rows: int, inputs: int, outputs: int, shares: int
) -> None:
    torch.manual_seed(rows)
    weight, exact = kind.weight(outputs, inputs, device)
    x, bias = torch.randn(rows, inputs, device=device), torch.randn(outputs, device=device)
    tiles = DotTiles(16, 64, 4, 3, shares)
    close(few_bit_dots(x, weight, bias, tiles=tiles), x.double() @ exact.T + bias.double())


@pytest.mark.parametrize("rows", [2, 8, 9, 32])
def test_products_of_few_rows_are_computed_by_it(device: torch.device, rows: int) -> None:
    torch.manual_seed(rows)
    weight, exact = FOUR.weight(40, 1000, device)
    x = torch.randn(rows, 1000, device=device).bfloat16()
    found = few_bit_product(x, weight)
    assert torch.equal(found, few_bit_dots(x, weight))
    close(found, x.double() @ exact.T)


def test_shared_sums_leave_their_counters_at_zero(device: torch.device) -> None:
    torch.manual_seed(2)
    weight, exact = FOUR.weight(200, 1024, device)
    x = torch.randn(33, 1024, device=device)
    for shares in (4, 2, 4):
        tiles = DotTiles(16, 32, 2, 3, shares)
        close(few_bit_dots(x, weight, tiles=tiles), x.double() @ exact.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_of_each_type(device: torch.device, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    weight, exact = FOUR.weight(9, 512, device)
    x = torch.randn(6, 512, device=device)
    close(few_bit_dots(x, with_scales_in(weight, dtype)), x.double() @ exact.T)


@pytest.mark.skipif(not INTERPRETED, reason="kernels run on a GPU here")
@pytest.mark.parametrize("shares", [1, 2, 3, 4, 5])
def test_each_program_requests_early_the_words_of_its_own_share(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, shares: int
) -> None:
    """Of 5 blocks, which most of these numbers do not divide; with 4 shares, the last has none."""
    requested = requests(monkeypatch, module)
    weight, exact = FOUR.weight(70, 5 * 256, device)
    x = torch.randn(3, 5 * 256, device=device)
    close(few_bit_dots(x, weight, tiles=DotTiles(16, 64, 4, 3, shares)), x.double() @ exact.T)
    every = lines_of(weight.words)
    assert len(requested) == 2 * shares
    assert {line for program in requested for line in program} == set(every)
    if shares != 4:
        assert sum(len(set(program)) for program in requested) == len(every)


@pytest.mark.parametrize(
    ("bits", "inputs", "outputs", "shares"),
    [
        *((8, 4096, 28672, 1), (8, 4096, 6144, 4), (8, 4096, 4096, 8), (8, 14336, 4096, 8)),
        *((-8, 4096, 28688, 4), (-8, 4096, 6160, 8), (-8, 4096, 4112, 8), (-8, 14336, 4112, 16)),
    ],
)
def test_inputs_are_shared_where_programs_are_few(
    bits: int, inputs: int, outputs: int, shares: int
) -> None:
    """Of a device with 132 multiprocessors, on which these or nearly these were the fastest."""
    assert (bits, inputs, outputs) not in {key[1:4] for key in launch.FEW_BIT_DOTS}
    assert dot_tiles(16, inputs, outputs, bits, 32, 132).shares == shares


@pytest.mark.parametrize("rows", [2, 8, 9, 16])
def test_the_table_decides_for_the_sizes_in_it(rows: int) -> None:
    height = 8 if rows <= 8 else 16
    for (of, bits, inputs, outputs, *group), tiles in launch.FEW_BIT_DOTS.items():
        assert of == tiles.rows
        if of == height:
            assert dot_tiles(rows, inputs, outputs, bits, *(group or [32]), 132) is tiles
    assert dot_tiles(17, 4096, 6144, 4, 32, 132).rows == 32


def test_an_entry_of_one_group_goes_before_that_of_all() -> None:
    own, of_all = (launch.FEW_BIT_DOTS[16, 4, 4096, 6144, *group] for group in ([128], []))
    assert own != of_all
    assert dot_tiles(16, 4096, 6144, 4, 128, 132) is own
    for group in (32, 64):
        assert dot_tiles(16, 4096, 6144, 4, group, 132) is of_all
