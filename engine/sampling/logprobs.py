"""Log-probabilities of given tokens, and of the most likely ones."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor

from engine.device.device import Readback
from engine.device.sending import sent_one
from engine.messages import TokenLogprobs

# The layout of ``TokenLogprobs.packed``.
_PACKED = np.dtype([("token_id", "<i4"), ("logprob", "<f4")])


class LogprobRows:
    """The logprobs of a few rows' tokens, being copied to the host."""

    __slots__ = ("_readback", "_top")

    def __init__(
        self, values: Tensor, ranks: Tensor, best: Tensor, ids: Tensor, top: Items[int]
    ) -> None:
        """``values`` and ``ranks`` [rows]: the tokens' log-probabilities and ranks; ``best`` and
        ``ids`` [rows, most]: the most likely tokens, of which row i reports ``top[i]``."""
        self._readback = Readback(values, ranks, best, ids)
        self._top = top

    def read(self) -> list[TokenLogprobs]:
        """Wait for the device."""
        values, ranks, best, ids = self._readback.wait()
        packed = np.empty(tuple(ids.shape), dtype=_PACKED)
        packed["token_id"], packed["logprob"] = ids.numpy(), best.numpy()
        return [
            TokenLogprobs(logprob, rank, row[:count].tobytes())
            for logprob, rank, row, count in zip(
                values.tolist(), ranks.tolist(), packed, self._top, strict=True
            )
        ]


def logprob_rows(logits: Tensor, tokens: Tensor, top: Items[int]) -> LogprobRows:
    """For each row of float32 ``logits`` [rows, vocabulary]: the log-probability and rank of
    ``tokens[row]`` (int64) under their softmax, and the ``top[row]`` most likely tokens."""
    logprobs = torch.log_softmax(logits, dim=-1)
    values = logprobs.gather(1, tokens.unsqueeze(1))
    most = min(max(top, default=0), logits.shape[1])
    best, ids = logprobs.topk(most, dim=1)
    # In place, and summed as floats, which are exact up to 2^24: a CPU sums booleans slowly.
    ranks = logprobs.gt_(values).sum(1).int().add_(1)
    return LogprobRows(values.squeeze(1), ranks, best, ids, top)


def token_logprobs(logits: Tensor, tokens: Items[int], top: Items[int]) -> list[TokenLogprobs]:
    """Compute ``logprob_rows`` of tokens that the host knows, and wait for the result."""
    chosen = sent_one(np.array(tokens, np.int64), logits.device)
    return logprob_rows(logits, chosen, top).read()
