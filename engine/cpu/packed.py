"""Weights as ``forward.c`` reads them: panels of outputs, inputs in turn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.cpu.library import LinearStruct


class PackedWeight:
    """A linear map [out, in] in panels [panels, in, panel]; outputs beyond ``out`` are zeros.

    A float32 weight whose values all are bfloat16 values, as those of most checkpoints, is kept
    in bfloat16: half the bytes to read at each step, and the same products to the last bit. There,
    outputs i and i + panel / 2 of a panel lie side by side.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, panel: int) -> None:
        outputs, inputs = weight.shape
        panels = -(-outputs // panel)
        padded = functional.pad(weight.float(), (0, 0, 0, panels * panel - outputs))
        packed = padded.view(panels, panel, inputs).permute(0, 2, 1)
        halved = packed.to(torch.bfloat16)
        self.is_bfloat16 = bool((halved == packed).all())
        if self.is_bfloat16:
            pairs = halved.reshape(panels, inputs, 2, panel // 2).transpose(2, 3)
            self._weight = pairs.contiguous()
        else:
            self._weight = packed.contiguous()
        self._bias = None if bias is None else bias.float().contiguous()
        self.outputs = outputs
        self.struct = LinearStruct(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            inputs,
            outputs,
            self.is_bfloat16,
            inputs,
        )


def interleaved(gate: Tensor, up: Tensor, panel: int) -> Tensor:
    """Rows of two equal weights (or biases), each padded to whole panels, panels in turn."""
    rows = gate.shape[0]
    panels = -(-rows // panel)
    padding = [0, 0] * (gate.dim() - 1) + [0, panels * panel - rows]
    both = [
        functional.pad(part, padding).reshape(panels, 1, panel, *part.shape[1:])
        for part in (gate, up)
    ]
    return torch.cat(both, dim=1).flatten(0, 2)
