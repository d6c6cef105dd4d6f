"""The matrices of a Llama-like decoder as its kernels read them, in floats or in few bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.architecture.config import ModelConfig
from engine.gpu.kernels.few_bits import FewBitWeight, packed_few_bits
from engine.model.parameters import head_order
from engine.weights.grouped import GroupedWeight, joined
from engine.weights.quantization import Float8Source, GroupedSource
from engine.weights.weights import WeightSource

KernelMatrix = Tensor | FewBitWeight


@dataclass(slots=True)
class KernelMatrices:
    """Reads matrices from ``source``. With ``keeps_few_bits`` those that it has in few bits stay
    so, if kernels can read them; ``dequantized`` counts the others."""

    source: WeightSource
    dtype: torch.dtype
    device: torch.device
    keeps_few_bits: bool
    kept: int = 0
    dequantized: int = 0

    def below_each_other(
        self, names: list[str], orders: list[Tensor | None] | None = None
    ) -> KernelMatrix:
        """Return the matrices ``names`` as one. ``orders``: of the outputs of each; None: as they
        are stored."""
        orders = orders or [None] * len(names)
        parts = [
            _ordered(self._read(name), order) for name, order in zip(names, orders, strict=True)
        ]
        grouped = [part for part in parts if isinstance(part, GroupedWeight)]
        if len(grouped) == len(parts) and len({part.codes.dtype for part in grouped}) == 1:
            whole = joined(grouped)
            packed = packed_few_bits(whole, self.device)
            if packed is not None:
                self.kept += len(parts)
                return packed
            self.dequantized += len(parts)
            return self._floats(whole)
        self.dequantized += len(grouped)
        return torch.cat([self._floats(part) for part in parts])

    def qkv(self, config: ModelConfig, prefix: str) -> KernelMatrix:
        """See ``engine.model.parameters.fused_qkv``, of the weights."""
        order = head_order(config)

        def rows(heads: int) -> Tensor:
            return (torch.arange(heads).unsqueeze(1) * config.head_dim + order).view(-1)

        names = [f"{prefix}{name}_proj.weight" for name in "qkv"]
        orders = [rows(config.num_heads), rows(config.num_kv_heads), None]
        return self.below_each_other(names, orders)

    def _read(self, name: str) -> GroupedWeight | Tensor:
        found = None
        if self.keeps_few_bits and isinstance(self.source, GroupedSource):
            found = self.source.grouped(name)
        if found is None and self.keeps_few_bits and isinstance(self.source, Float8Source):
            found = self.source.float8(name)
        return self.source.tensor(name) if found is None else found

    def _floats(self, part: GroupedWeight | Tensor) -> Tensor:
        if isinstance(part, Tensor):
            return part
        return part.dequantised().to(self.dtype).to(self.device)


def _ordered(part: GroupedWeight | Tensor, order: Tensor | None) -> GroupedWeight | Tensor:
    if order is None:
        return part
    if isinstance(part, GroupedWeight):
        return part.rows(order.to(part.codes.device))
    return part.index_select(0, order.to(part.device))
