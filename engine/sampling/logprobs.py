"""Log-probabilities of given tokens, and of the most likely ones."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from engine.messages import TokenLogprobs, TopLogprob


def token_logprobs(logits: Tensor, tokens: Items[int], top: Items[int]) -> list[TokenLogprobs]:
    """For each row of float32 ``logits`` [rows, vocabulary]: the log-probability and rank of
    ``tokens[row]`` under their softmax, and the ``top[row]`` most likely tokens."""
    logprobs = torch.log_softmax(logits, dim=-1)
    chosen = torch.tensor(tokens, dtype=torch.int64, device=logits.device).unsqueeze(1)
    values = logprobs.gather(1, chosen)
    ranks = (logprobs > values).sum(1).add_(1).tolist()
    most = min(max(top, default=0), logits.shape[1])
    top_values, top_ids = logprobs.topk(most, dim=1)
    rows = zip(
        values.squeeze(1).tolist(), ranks, top_values.tolist(), top_ids.tolist(), top, strict=True
    )
    return [
        TokenLogprobs(
            logprob,
            rank,
            [TopLogprob(i, v) for i, v in zip(ids[:count], best[:count], strict=True)],
        )
        for logprob, rank, best, ids, count in rows
    ]
