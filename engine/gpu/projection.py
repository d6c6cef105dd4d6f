"""A linear map of a layer, by the kernel that fits the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import linear

from engine.gpu.kernels.few_bit_product import few_bit_product
from engine.gpu.kernels.few_bit_vectors import few_bit_vectors
from engine.gpu.kernels.few_bits import FewBitWeight
from engine.gpu.kernels.launch import VECTOR_ROWS
from engine.gpu.kernels.product import product
from engine.gpu.kernels.skinny import Norm, skinny_product
from engine.gpu.matrices import KernelMatrices, KernelMatrix


@dataclass(frozen=True, slots=True)
class Projection:
    """``weight`` [out, in], and ``bias`` [out] if there is one. ``deterministic``: the weight is in
    floats."""

    weight: KernelMatrix
    bias: Tensor | None
    deterministic: bool = False

    @classmethod
    def load(
        cls, matrices: KernelMatrices, name: str, has_bias: bool, deterministic: bool
    ) -> Projection:
        """Return the one that a checkpoint stores as ``name``."""
        bias = matrices.source.tensor(name + ".bias") if has_bias else None
        return cls(matrices.below_each_other([name + ".weight"]), bias, deterministic)

    def __call__(self, x: Tensor) -> Tensor:
        if isinstance(self.weight, FewBitWeight):
            few = x.shape[0] <= VECTOR_ROWS
            multiply = few_bit_vectors if few else few_bit_product
            return multiply(x, self.weight, self.bias)
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
        if isinstance(self.weight, FewBitWeight):
            return few_bit_vectors(
                x, self.weight, self.bias, norm=norm, activation=activation, residual=residual
            )
        return skinny_product(
            x, self.weight, self.bias, norm=norm, activation=activation, residual=residual
        )
