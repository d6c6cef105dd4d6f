"""A linear map of a layer, by the kernel that fits the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import linear

from engine.gpu.kernels.product import product
from engine.gpu.kernels.skinny import Norm, skinny_product
from engine.weights.weights import WeightSource


@dataclass(frozen=True, slots=True)
class Projection:
    """``weight`` [out, in], and ``bias`` [out] if there is one."""

    weight: Tensor
    bias: Tensor | None
    deterministic: bool = False

    @classmethod
    def load(
        cls, source: WeightSource, name: str, has_bias: bool, deterministic: bool
    ) -> Projection:
        """Return the one that a checkpoint stores as ``name``."""
        bias = source.tensor(name + ".bias") if has_bias else None
        return cls(source.tensor(name + ".weight"), bias, deterministic)

    def __call__(self, x: Tensor) -> Tensor:
        apply = product if self.deterministic else linear
        return apply(x, self.weight, self.bias)

    def of_few(
        self,
        x: Tensor,
        *,
        norm: Norm | None = None,
        activation: str = "",
        residual: Tensor | None = None,
    ) -> Tensor:
        """See ``skinny_product``."""
        return skinny_product(
            x, self.weight, self.bias, norm=norm, activation=activation, residual=residual
        )
