"""Weights in the format of ``linear.h``: panels of outputs, each ordered by input."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor
from torch.nn import functional

from engine.cpu.integers import IntegerKind, kind_of, packed_integers
from engine.cpu.library import LinearStruct
from engine.weights.grouped import GroupedWeight


class WeightKind(IntEnum):
    """How a packed weight is stored; numbered as in ``linear.h``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    BFLOAT16_PAIRS = 2


class PackedWeight:
    """A linear map [out, in] in panels [panels, in, panel]; outputs beyond ``out`` are zeros.

    A float32 weight whose values are all bfloat16 values, as in most checkpoints, is stored in
    bfloat16: half the bytes to read in each step, and identical products. Outputs i and
    i + panel / 2 of such a panel are adjacent. With ``bf16_products`` such a weight is
    [panels, in / 2, panel, 2] instead, with pairs of inputs adjacent, and ``linear.h`` rounds the
    inputs to bfloat16 before it multiplies; the library must support such products. An odd ``in``
    is padded with zeros. A weight of few bits is stored as ``integers.h`` describes.
    """

    def __init__(
        self,
        weight: Tensor | GroupedWeight,
        bias: Tensor | None,
        panel: int,
        *,
        bf16_products: bool = False,
    ) -> None:
        self.outputs, inputs = weight.shape
        room = inputs
        self.kind: WeightKind | IntegerKind
        if isinstance(weight, GroupedWeight):
            self.kind = kind_of(weight)
            self._weight = packed_integers(weight, self.kind, panel)
        else:
            self.kind, self._weight = _floats(_in_panels(weight.float(), panel), bf16_products)
            if self.kind is WeightKind.BFLOAT16_PAIRS:
                room += inputs % 2
        self._bias = None if bias is None else bias.float().contiguous()
        self.struct = LinearStruct(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            inputs,
            self.outputs,
            self.kind,
            room,
        )


def _in_panels(values: Tensor, panel: int) -> Tensor:
    """Reshape [out, n] to [panels, n, panel]."""
    outputs, columns = values.shape
    panels = -(-outputs // panel)
    padded = functional.pad(values, (0, 0, 0, panels * panel - outputs))
    return padded.view(panels, panel, columns).transpose(1, 2)


def _floats(weight: Tensor, bf16_products: bool) -> tuple[WeightKind, Tensor]:
    """Pack float weights. ``weight``: float32 [panels, in, panel]."""
    halved = weight.to(torch.bfloat16)
    if not bool((halved == weight).all()):
        return WeightKind.FLOAT32, weight.contiguous()
    panels, inputs, panel = weight.shape
    if bf16_products:
        even = functional.pad(halved, (0, 0, 0, inputs % 2))
        pairs = even.reshape(panels, -1, 2, panel).transpose(2, 3)
        return WeightKind.BFLOAT16_PAIRS, pairs.contiguous()
    halves = halved.reshape(panels, inputs, 2, panel // 2).transpose(2, 3)
    return WeightKind.BFLOAT16, halves.contiguous()


def interleaved(gate: Tensor, up: Tensor, panel: int) -> Tensor:
    """Interleave the rows of two weights (or biases) of equal size panel by panel, each padded to
    whole panels."""
    rows = gate.shape[0]
    panels = -(-rows // panel)
    padding = [0, 0] * (gate.dim() - 1) + [0, panels * panel - rows]
    both = [
        functional.pad(part, padding).reshape(panels, 1, panel, *part.shape[1:])
        for part in (gate, up)
    ]
    return torch.cat(both, dim=1).flatten(0, 2)
