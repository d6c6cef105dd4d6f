"""Filters rows of scaled logits by min-p, top-k and top-p.

Each filter keeps the tokens at or above a threshold, so tokens of equal probability are kept or
hidden together and a row's outcome depends only on its own values.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HIDDEN = float("-inf")
# How many of the most likely tokens to try before sorting a whole vocabulary for top-p.
_FIRST_CANDIDATES = 512


def keep_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Hide tokens less than ``min_p`` [rows, 1] times as likely as the likeliest (2407.01082)."""
    threshold = logits.amax(dim=-1, keepdim=True) + min_p.log()
    return logits.masked_fill(logits < threshold, _HIDDEN)


def keep_top_k(logits: Tensor, top_k: Tensor, largest: int) -> Tensor:
    """Hide tokens less likely than the ``top_k``-th [rows, 1]; ``largest`` of those below the
    vocabulary's size. Rows with ``top_k`` of the vocabulary's size are unchanged."""
    best = logits.topk(largest, dim=-1).values
    threshold = best.gather(1, top_k.clamp(max=largest) - 1)
    threshold = threshold.masked_fill(top_k >= logits.shape[-1], _HIDDEN)
    return logits.masked_fill(logits < threshold, _HIDDEN)


def keep_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Hide all but the most likely tokens that together reach ``top_p`` [rows, 1] (1904.09751)."""
    total = logits.logsumexp(dim=-1, keepdim=True)
    # Only the device knows whether the first candidates suffice, and a GPU is not waited for.
    candidates = logits.shape[-1] if logits.is_cuda else _FIRST_CANDIDATES
    threshold, found = _top_p_threshold(logits, total, top_p, candidates)
    if candidates < logits.shape[-1] and not found.all():
        rest = (~found).nonzero().squeeze(1)
        threshold[rest], _ = _top_p_threshold(
            logits[rest], total[rest], top_p[rest], logits.shape[-1]
        )
    threshold = threshold.masked_fill(top_p >= 1, _HIDDEN)
    return logits.masked_fill(logits < threshold, _HIDDEN)


def _top_p_threshold(
    logits: Tensor, total: Tensor, top_p: Tensor, candidates: int
) -> tuple[Tensor, Tensor]:
    """Return the lowest logit kept [rows, 1], and whether ``candidates`` tokens were enough
    [rows]."""
    candidates = min(candidates, logits.shape[-1])
    best = logits.topk(candidates, dim=-1).values
    mass = (best - total).exp().cumsum(dim=-1, dtype=torch.float64)
    needed = (mass < top_p).sum(dim=-1, keepdim=True)  # tokens before the one that reaches top_p
    found = (needed.squeeze(1) < candidates) | (candidates == logits.shape[-1])
    found |= top_p.squeeze(1) >= 1
    return best.gather(1, needed.clamp(max=candidates - 1)), found
