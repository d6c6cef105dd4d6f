"""An int8 weight is off by half a step at most, and every decoder computes the same with it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.weights.quantization import GROUP, DequantisedWeights, quantise


@given(
    outputs=st.integers(1, 5),
    inputs=st.integers(1, 3 * GROUP),
    seed=st.integers(0, 10**6),
    exponent=st.integers(-20, 20),
)
def test_a_weight_is_off_by_half_a_step_at_most(
    outputs: int, inputs: int, seed: int, exponent: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=chance) * 2.0**exponent
    found = quantise(weight)
    assert found.values.dtype == torch.int8
    assert found.scales.shape == (outputs, -(-inputs // GROUP))
    for group in range(found.scales.shape[1]):
        columns = slice(group * GROUP, (group + 1) * GROUP)
        exact = weight[:, columns].double()
        step = exact.abs().amax(dim=1, keepdim=True) / 127
        off = found.dequantised()[:, columns].double() - exact
        # Half a step, and what float32 rounds in the division and the product.
        assert (off.abs() <= step * (0.5 + 127 * 2**-23)).all()


def test_multiples_of_a_step_are_kept_as_they_are() -> None:
    weight = torch.arange(-127, 128).float().repeat(2, 1)[:, : 2 * GROUP] / 128
    weight[:, 0], weight[:, GROUP] = 127 / 128, -127 / 128
    assert torch.equal(quantise(weight).dequantised(), weight)


def test_zeros_stay_zeros() -> None:
    weight = torch.zeros(3, GROUP + 5)
    weight[0, 0] = 4.0
    assert torch.equal(quantise(weight).dequantised(), weight)


def test_only_matrices_are_quantised() -> None:
    tensors = {"matrix": torch.randn(4, 70), "vector": torch.randn(70)}

    class Source:
        def tensor(self, name: str) -> torch.Tensor:
            return tensors[name]

    source = DequantisedWeights(Source())
    assert torch.equal(source.tensor("vector"), tensors["vector"])
    assert torch.equal(source.tensor("matrix"), quantise(tensors["matrix"]).dequantised())
    assert not torch.equal(source.tensor("matrix"), tensors["matrix"])


@pytest.mark.parametrize("std", [0.02, 1.0])
def test_the_error_of_normal_weights_is_what_the_documentation_says(std: float) -> None:
    weight = torch.randn(512, 1024, generator=torch.Generator().manual_seed(1)) * std
    error = (quantise(weight).dequantised() - weight).pow(2).mean().sqrt() / std
    assert error == pytest.approx(0.0059, abs=1e-4)
