"""Weights in the format of ``linear.h``: panels of outputs, each ordered by input."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor
from torch.nn import functional

from engine.cpu.blocks import PackedBlocks
from engine.cpu.integers import IntegerKind, kind_of, packed_integers
from engine.cpu.library import Library, LinearStruct
from engine.device.pages import zeros
from engine.weights.grouped import GroupedWeight

# Elements of a matrix that are packed at a time.
_PART_ELEMENTS = 1 << 20


class WeightKind(IntEnum):
    """How a packed weight is stored; numbered as in ``linear.h``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    BFLOAT16_PAIRS = 2


class PackedWeight:
    """A linear map [out, in] in panels [panels, in, panel]; outputs beyond ``out`` are zeros.

    A float32 weight whose values are all bfloat16 values, as in most checkpoints, is stored in
    bfloat16: half the bytes to read in each step, and identical products. Outputs i and
    i + panel / 2 of such a panel are adjacent. With the library's ``pair_inputs`` such a weight is
    [panels, in / 2, panel, 2] instead, with pairs of inputs adjacent, and ``linear.h`` rounds the
    inputs to bfloat16 before it multiplies; the library must support such products. Zeros fill up
    ``in`` to a multiple of ``pair_inputs``. A weight of few bits is stored as ``integers.h``
    describes.
    """

    def __init__(
        self,
        weight: Tensor | GroupedWeight | PackedBlocks,
        bias: Tensor | None,
        panel: int,
        *,
        pair_inputs: int = 0,
        scale: float = 1.0,
    ) -> None:
        """``scale``: of the result, where it is added to something."""
        self.outputs, inputs = weight.shape
        room = inputs
        self.kind: WeightKind | IntegerKind
        if isinstance(weight, GroupedWeight):
            self.kind = kind_of(weight)
            self._weight = packed_integers(weight, self.kind, panel)
        elif isinstance(weight, PackedBlocks):
            self.kind, self._weight = weight.kind, weight.panels
        else:
            self.kind, self._weight = _floats(weight, panel, pair_inputs)
            if self.kind is WeightKind.BFLOAT16_PAIRS:
                room += -inputs % pair_inputs
        self._bias = None if bias is None else bias.float().contiguous()
        self.struct = LinearStruct(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            inputs,
            self.outputs,
            self.kind,
            room,
            scale,
        )

    def rows(self, library: Library, index: Tensor) -> Tensor:
        """Return the weights of the outputs ``index`` (int64 [n], each below ``out``) as float32
        [n, in]: products of codes and scales, and differences from minimums, rounded once each.
        Raises IndexError for one outside."""
        index = index.contiguous()
        found = torch.empty(index.shape[0], self.struct.inputs)
        if not library.rows(self.struct, index.data_ptr(), index.shape[0], found.data_ptr()):
            raise IndexError(f"rows outside 0 to {self.outputs - 1}")
        return found

    def mapped(self, library: Library, team: int, x: Tensor) -> Tensor:
        """Return float32 [rows, out] for ``x``, float32 [rows, in]."""
        out = torch.empty(x.shape[0], self.outputs)
        x = x.contiguous()
        library.linear(team, self.struct, x.data_ptr(), x.shape[0], out.data_ptr())
        return out

    @property
    def num_bytes(self) -> int:
        held = (self._weight, self._bias)
        return sum(each.nbytes for each in held if each is not None)


def _in_panels(values: Tensor, panel: int) -> Tensor:
    """Reshape [out, n] to [panels, n, panel]."""
    outputs, columns = values.shape
    panels = -(-outputs // panel)
    missing = panels * panel - outputs
    padded = functional.pad(values, (0, 0, 0, missing)) if missing else values
    return padded.reshape(panels, panel, columns).transpose(1, 2)


def _floats(weight: Tensor, panel: int, pair_inputs: int) -> tuple[WeightKind, Tensor]:
    """Pack float weights [out, in], a few panels at a time: a large matrix has no other copy."""
    outputs, inputs = weight.shape
    panels = -(-outputs // panel)
    some = max(1, _PART_ELEMENTS // (panel * inputs))
    if weight.dtype != torch.bfloat16 and not all(
        map(_is_bfloat16, torch.split(weight, some * panel))
    ):
        kind, packed = WeightKind.FLOAT32, zeros(panels, inputs, panel)
        by_panel = packed.transpose(1, 2)
    elif pair_inputs:
        kind = WeightKind.BFLOAT16_PAIRS
        room = inputs + -inputs % pair_inputs
        packed = zeros(panels, room // 2, panel, 2, dtype=torch.bfloat16)
        by_panel = packed.permute(0, 2, 1, 3)
    else:
        kind = WeightKind.BFLOAT16
        packed = zeros(panels, inputs, panel // 2, 2, dtype=torch.bfloat16)
        by_panel = packed.permute(0, 3, 2, 1)
    for first in range(0, panels, some):
        part = _in_panels(weight[first * panel : (first + some) * panel], panel).transpose(1, 2)
        goal = by_panel[first : first + some]
        if kind is WeightKind.BFLOAT16_PAIRS and inputs % pair_inputs:
            part = functional.pad(part, (0, -inputs % pair_inputs))
        goal.copy_(part.reshape(goal.shape))
    return kind, packed


def _is_bfloat16(values: Tensor) -> bool:
    """Whether all values are bfloat16 values."""
    return bool((values.to(torch.bfloat16) == values).all())


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
