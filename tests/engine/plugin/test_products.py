"""Linear maps over packed weights compute what torch's do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from engine.cpu.library import LibraryUnavailableError, library
from engine.plugin.products import (
    CompiledLinear,
    Products,
    replace_part,
    takes_stored,
    use_products,
)
from engine.plugin.trial import fill_strongly
from tests.engine.plugin.families import tiny_config

try:
    PRODUCTS = Products(library(), 1)
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)


class Scaled(nn.Linear):
    """Computes something else, so it must stay."""


@pytest.fixture
def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "with_bias": nn.Linear(33, 20),
            "without": nn.Linear(33, 20, bias=False),
            "transposed": Conv1D(20, 33),
            "own": Scaled(33, 20),
        }
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_replaced_maps_compute_the_same(model: nn.ModuleDict, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 33).to(dtype)
    expected = {name: part(x.float()) for name, part in model.items()}
    use_products(model, PRODUCTS)
    for name in ("with_bias", "without", "transposed"):
        found = model[name](x)
        assert isinstance(model[name], CompiledLinear)
        assert found.dtype == dtype
        tolerance = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found.float(), expected[name], rtol=tolerance, atol=tolerance)


def test_a_derived_class_stays(model: nn.ModuleDict) -> None:
    use_products(model, PRODUCTS)
    assert type(model["own"]) is Scaled


@torch.inference_mode()
def test_falcons_own_class_of_linear_maps_is_replaced() -> None:
    torch.manual_seed(0)
    config = tiny_config("falcon#serial")  # with biases
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill_strongly(model)
    layer, x = model.transformer.h[0].mlp, torch.randn(1, 5, 64)
    assert type(layer.dense_h_to_4h) is not nn.Linear
    expected = layer(x)
    use_products(model, PRODUCTS)
    assert isinstance(layer.dense_h_to_4h, CompiledLinear)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_rows_may_be_strided_and_none(model: nn.ModuleDict) -> None:
    x = torch.randn(33, 5).t()
    expected = model["without"](x)
    use_products(model, PRODUCTS)
    torch.testing.assert_close(model["without"](x), expected, rtol=1e-5, atol=1e-5)
    assert model["without"](x[:0]).shape == (0, 20)


@pytest.mark.parametrize(
    "kind", ["mixtral", "gpt_oss", "phimoe", "granitemoe", "gemma4_text#moe", "laguna"]
)
@torch.inference_mode()
def test_compiled_experts_compute_the_same(kind: str) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(tiny_config(kind), dtype=torch.float32).eval()
    fill_strongly(model)
    model.set_experts_implementation("eager")
    [(name, experts), *_] = [
        (name, part)
        for name, part in model.named_modules()
        if takes_stored(part) and not isinstance(part, nn.Linear | nn.Embedding)
    ]
    hidden = torch.randn(33, 64)
    chosen = torch.stack([torch.randperm(7)[:2] for _ in hidden])  # the last one is idle
    weights = torch.rand(33, 2)
    expected = experts(hidden, chosen, weights)
    replace_part(model, name, PRODUCTS)
    assert not list(experts.parameters())
    for rows in (33, 1, 0):
        found = experts(hidden[:rows], chosen[:rows], weights[:rows])
        torch.testing.assert_close(found, expected[:rows], rtol=1e-4, atol=1e-4)
