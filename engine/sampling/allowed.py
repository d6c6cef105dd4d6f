"""Applies grammar masks to logits."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.device.sending import sent
from engine.step.mask import TokenMask


def forbid_others(logits: Tensor, rows: Items[int], mask: TokenMask) -> None:
    """Hide, in place, tokens that the masks do not allow. ``logits`` is [batch, vocabulary]; bit t
    of ``mask[i, t // 32]``, uint32 [rows, vocabulary / 32], allows token t in row ``rows[i]``.
    Tokens beyond the masks are hidden."""
    vocabulary = logits.shape[1]
    packed, index = sent([mask.view("uint8"), np.array(rows, np.int64)], logits.device)
    shifts = torch.arange(8, dtype=torch.uint8, device=logits.device)
    bits = ((packed.unsqueeze(-1) >> shifts) & 1).flatten(1)[:, :vocabulary]
    hidden = pad(bits == 0, (0, vocabulary - bits.shape[1]), value=True)
    if len(rows) == logits.shape[0]:
        logits.masked_fill_(hidden, float("-inf"))
    else:
        kept = logits.index_select(0, index).masked_fill_(hidden, float("-inf"))
        logits.index_copy_(0, index, kept)
