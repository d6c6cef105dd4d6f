"""Linear maps of transformers' models by our compiled products, on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from engine.cpu.library import Library
from engine.cpu.packed import PackedWeight


@dataclass(frozen=True, slots=True)
class Products:
    """How to multiply: by ``library`` on so many ``threads``. ``bf16_products``: see
    ``PackedWeight``."""

    library: Library
    threads: int
    bf16_products: bool = False


class CompiledLinear(nn.Module):
    """``x @ weight.T + bias`` over packed weights. Computes in float32, whatever x is."""

    def __init__(self, weight: Tensor, bias: Tensor | None, products: Products) -> None:
        """``weight``: [out, in]."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        library = products.library
        self._library = library
        self._team = library.team(products.threads)
        self._packed = PackedWeight(
            weight, bias, library.panel, bf16_products=products.bf16_products
        )

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        rows = x.reshape(-1, self.in_features).float().contiguous()
        out = torch.empty(rows.shape[0], self.out_features)
        self._library.linear(
            self._team, self._packed.struct, rows.data_ptr(), rows.shape[0], out.data_ptr()
        )
        return out.view(*x.shape[:-1], self.out_features).to(x.dtype)


def use_products(model: nn.Module, products: Products) -> None:
    """Replace the linear maps of ``model``, one after the other, so that at most one is there
    twice."""
    for name, module in list(model.named_modules()):
        packed = _packed(module, products)
        if packed is not None:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, packed)


def _packed(module: nn.Module, products: Products) -> CompiledLinear | None:
    """Return the replacement. Classes derived from these may compute something else."""
    if type(module) is nn.Linear:
        return CompiledLinear(module.weight.data, _data(module.bias), products)
    if type(module) is Conv1D:  # GPT-2's, stored [in, out]
        return CompiledLinear(module.weight.data.t(), _data(module.bias), products)
    return None


def _data(parameter: nn.Parameter | None) -> Tensor | None:
    return None if parameter is None else parameter.data
