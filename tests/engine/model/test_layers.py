"""Linear maps, packed or not, and norms equal their plain definitions."""

from __future__ import annotations

import pytest
import torch

from engine.model.layers import Linear, PackedLinear, RMSNorm, make_feed_forward, make_linear


@pytest.mark.parametrize("kind", [Linear, PackedLinear])
@pytest.mark.parametrize("rows", [1, 2, 16, 65])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_map_equals_its_definition_in_float64(
    kind: type[Linear] | type[PackedLinear], rows: int, biased: bool
) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(96, 40), torch.randn(rows, 40)
    bias = torch.randn(96) if biased else None
    residual = torch.randn(rows, 96)
    expected = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
    with torch.inference_mode():
        linear = kind(weight, bias)
        torch.testing.assert_close(linear(x).double(), expected, atol=1e-4, rtol=1e-5)
        added = linear.add_to(residual.clone(), x)
    torch.testing.assert_close(added.double(), expected + residual.double(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("outputs", "inputs"), [(96, 40), (40, 96), (1024, 1024)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_chosen_layout_changes_nothing(outputs: int, inputs: int, threads: int) -> None:
    weight, x = torch.randn(outputs, inputs), torch.randn(3, inputs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        made = make_linear(weight), make_feed_forward(weight)
        results = [linear(x).double() for linear in made]
    finally:
        torch.set_num_threads(before)
    for result in results:
        torch.testing.assert_close(result, x.double() @ weight.double().t(), atol=1e-3, rtol=1e-4)
    if threads == 1 or weight.numel() < 2**19:
        assert isinstance(made[1], Linear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 48), (7, 48), (3, 5, 48)])
def test_rms_norm_equals_its_definition(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(shape).to(dtype), torch.randn(48).to(dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(
        RMSNorm(weight, 1e-5)(x).double(), expected, atol=tolerance, rtol=tolerance
    )


def test_rms_norm_of_zeros_is_zero() -> None:
    assert RMSNorm(torch.ones(8), 1e-6)(torch.zeros(2, 8)).abs().max() == 0
