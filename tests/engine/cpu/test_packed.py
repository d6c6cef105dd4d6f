"""Linear maps over packed weights equal float64, however the weights are stored."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cpu.integers import IntegerKind
from engine.cpu.library import LibraryUnavailableError, library
from engine.cpu.packed import PackedWeight, WeightKind, interleaved
from engine.weights.quantization import quantise

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 11, 16])
@pytest.mark.parametrize("outputs", [5, 16, 48, 80, 135])
def test_a_linear_map_is_the_same_from_halved_weights(rows: int, outputs: int) -> None:
    chance = torch.Generator().manual_seed(outputs)
    weight = torch.randn(outputs, 33, generator=chance).bfloat16().float()
    bias = torch.randn(outputs, generator=chance)
    x = torch.randn(rows, 33, generator=chance)
    halved = PackedWeight(weight, bias, LIBRARY.panel)
    assert halved.kind is WeightKind.BFLOAT16
    weight[0, 0] = 1 + 2**-20  # not a bfloat16 value
    whole = PackedWeight(weight, bias, LIBRARY.panel)
    assert whole.kind is WeightKind.FLOAT32
    results = []
    for packed in (halved, whole):
        y = torch.empty(rows, outputs)
        args = (packed.struct, x.data_ptr(), rows, y.data_ptr())
        LIBRARY.linear(LIBRARY.team(2), *args)
        results.append(y)
    torch.testing.assert_close(
        results[1].double(),
        x.double() @ weight.double().t() + bias.double(),
        rtol=1e-5,
        atol=1e-5,
    )
    assert torch.equal(results[0][:, 1:], results[1][:, 1:])


@pytest.mark.parametrize("inputs", [8, 64, 600, 1032])
@pytest.mark.parametrize("kind", [WeightKind.FLOAT32, WeightKind.BFLOAT16])
def test_a_linear_map_matches_float64_for_any_weights_and_rows(
    kind: WeightKind, inputs: int
) -> None:
    chance = torch.Generator().manual_seed(inputs)
    outputs = 83
    weight = torch.randn(outputs, inputs, generator=chance)
    if kind is WeightKind.BFLOAT16:
        weight = weight.bfloat16().float()
    bias = torch.randn(outputs, generator=chance)
    x = torch.randn(130, inputs, generator=chance)
    packed = PackedWeight(weight, bias, LIBRARY.panel)
    assert packed.kind is kind
    expected = x.double() @ weight.double().t() + bias.double()
    # Each product and sum may round once, of terms of this size together.
    bound = (x.double().abs() @ weight.double().abs().t() + bias.double().abs()) * inputs**0.5
    together = mapped(packed, x)
    assert ((together.double() - expected).abs() <= bound * 2**-23).all()
    for rows in (1, 2, 3, 4, 5, 6, 7, 13, 16, 97):
        assert torch.equal(mapped(packed, x[:rows]), together[:rows])


def mapped(packed: PackedWeight, x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty(x.shape[0], packed.outputs)
    args = (packed.struct, x.data_ptr(), x.shape[0], y.data_ptr())
    LIBRARY.linear(LIBRARY.team(2), *args)
    return y


def test_gate_and_up_take_turns_by_panels() -> None:
    gate, up = torch.arange(6.0).view(3, 2), torch.arange(6.0).view(3, 2) + 10
    assert interleaved(gate, up, 2)[:, 0].tolist() == [0, 2, 10, 12, 4, 0, 14, 0]


def test_weights_of_few_bits_stay_so_and_others_float32() -> None:
    weight = torch.randn(40, 64, generator=torch.Generator().manual_seed(9))
    small = quantise(weight, "int8")
    assert PackedWeight(small, None, 32, pair_inputs=2).kind is IntegerKind.BYTES
    assert PackedWeight(weight, None, 32, pair_inputs=2).kind is WeightKind.FLOAT32


@pytest.mark.parametrize("inputs", [8, 33])
@pytest.mark.parametrize("outputs", [5, 48, 83])
@pytest.mark.parametrize("kind", WeightKind)
def test_rows_are_read_back(kind: WeightKind, outputs: int, inputs: int) -> None:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(inputs))
    if kind is not WeightKind.FLOAT32:
        weight = weight.bfloat16().float()
    pairs = kind is WeightKind.BFLOAT16_PAIRS
    packed = PackedWeight(weight, None, LIBRARY.panel, pair_inputs=LIBRARY.pair_inputs * pairs)
    assert packed.kind is kind
    index = torch.tensor([outputs - 1, 0, 3, 3, outputs // 2])
    assert torch.equal(packed.rows(LIBRARY, index), weight[index])
    assert packed.rows(LIBRARY, index[:0]).shape == (0, inputs)
    for outside in (-1, outputs, 1 << 40):
        with pytest.raises(IndexError, match=f"rows outside 0 to {outputs - 1}"):
            packed.rows(LIBRARY, torch.tensor([0, outside]))
