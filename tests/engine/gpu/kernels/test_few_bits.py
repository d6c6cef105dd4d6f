"""Weights of few bits keep their values in the form that kernels read."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.few_bits import few_bits_to_floats, packed_few_bits
from engine.weights.grouped import GroupedWeight, Scales
from engine.weights.quantization import Bits, quantise
from tests.engine.gpu.kernels.few_bit_weights import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(33, 256), (5, 300), (64, 32)])
def test_packed_and_dequantised_it_is_the_same_to_the_bit(
    device: torch.device, kind: Kind, outputs: int, inputs: int
) -> None:
    torch.manual_seed(inputs)
    weight, exact = kind.weight(outputs, inputs, device)
    assert weight.shape == (outputs, inputs)
    assert torch.equal(few_bits_to_floats(weight, torch.float32), exact.float())


def test_all_numbers_of_e4m3_are_read(device: torch.device) -> None:
    from engine.gpu.kernels.few_bits import packed_e4m3

    octets = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    numbers = octets[octets.float().isfinite()].view(2, 127).to(device)
    weight = packed_e4m3(numbers, torch.ones(2, 1, device=device), 128)
    assert torch.equal(few_bits_to_floats(weight, torch.float32), numbers.float())


@pytest.mark.parametrize(("bits", "size"), [("int4", 4.5), ("int8", 8.5)])
def test_what_is_quantized_at_load_keeps_its_bits(
    device: torch.device, bits: Bits, size: float
) -> None:
    torch.manual_seed(0)
    grouped = quantise(torch.randn(16, 512), bits)
    weight = packed_few_bits(grouped, device)
    assert weight is not None
    assert torch.equal(few_bits_to_floats(weight, torch.float32).cpu(), grouped.dequantised())
    assert weight.num_bytes * 8 / (16 * 512) == size


def test_groups_or_minimums_that_kernels_cannot_read_are_left_to_floats(
    device: torch.device,
) -> None:
    codes, scales = torch.zeros(4, 64, dtype=torch.int8), torch.full((4, 4), 0.5)
    assert packed_few_bits(GroupedWeight(codes, Scales(scales), None, 16), device) is None
    scales = scales[:, :2]
    minimums = scales * 3
    assert (
        packed_few_bits(GroupedWeight(codes, Scales(scales), Scales(minimums), 32), device)
        is not None
    )
    minimums[3, 1] = 0.7
    assert (
        packed_few_bits(GroupedWeight(codes, Scales(scales), Scales(minimums), 32), device) is None
    )


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(0.125, torch.float16), (2.0**-40, torch.bfloat16), (1 / 3, torch.float32)],
)
def test_scales_are_kept_in_the_shortest_type_that_has_them(
    device: torch.device, scale: float, dtype: torch.dtype
) -> None:
    grouped = GroupedWeight(
        torch.ones(2, 32, dtype=torch.int8), Scales(torch.full((2, 1), scale)), None, 32
    )
    weight = packed_few_bits(grouped, device)
    assert weight is not None
    assert weight.scales.dtype == dtype
    assert torch.equal(few_bits_to_floats(weight, torch.float32).cpu(), grouped.dequantised())
