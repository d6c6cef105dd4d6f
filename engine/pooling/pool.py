"""Pools the hidden states of a text that may come in chunks, and shapes the resulting vector."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import TellableError
from engine.messages import Pooling
from engine.step.step import PooledVector, ScheduledSequence


class PoolingError(TellableError):
    """The model computed NaN or infinity for this text."""


class Pooler:
    """Pools sequences whose tokens come chunk by chunk.

    Sums are float32 regardless of the model's dtype. Each chunk's sum is stored under the position
    where the chunk begins, and a chunk replaces everything stored from its beginning on: so one
    that is computed again, in a retry or after a preemption, counts once.
    """

    def __init__(self, pooling: Pooling) -> None:
        self.pooling = pooling
        self._parts: dict[int, dict[int, Tensor]] = {}  # uid -> first token of a chunk -> its part

    @property
    def needs_every_token(self) -> bool:
        """True if ``take`` needs the states of all of an item's tokens, not only the last one's."""
        return self.pooling is not Pooling.LAST

    def take(self, item: ScheduledSequence, states: Tensor) -> Tensor | None:
        """``states`` [tokens, hidden] end with the item's last token. Returns the pooled vector,
        float32 [hidden], once the item reaches the sequence's end."""
        if self.pooling is Pooling.LAST:
            return states[-1].float() if item.completes else None
        uid = item.sequence.uid
        if self.pooling is Pooling.CLS:
            part = states[0].float() if item.start == 0 else None
        else:
            part = states.sum(0, dtype=torch.float32)
        if item.completes and item.start == 0:
            whole = part
        else:
            known = self._parts.get(uid, {})
            parts = {start: p for start, p in known.items() if start < item.start}
            if part is not None:
                parts[item.start] = part
            self._parts[uid] = parts
            if not item.completes:
                return None
            whole = torch.stack(list(parts.values())).sum(0)
        assert whole is not None
        if self.pooling is Pooling.CLS:
            return whole
        return whole / (item.start + item.num_tokens)

    def forget(self, uid: int) -> None:
        """Drop the state of a sequence that has ended."""
        self._parts.pop(uid, None)


def shape_vector(
    values: NDArray[np.float32], *, dimensions: int | None, normalize: bool
) -> PooledVector:
    """Return the first ``dimensions`` elements of ``values`` [size], normalised to length 1 on
    request.

    Raises PoolingError for values that are not finite.
    """
    if not np.isfinite(values).all():
        raise PoolingError("the model's hidden states are not finite numbers")
    kept = values[:dimensions]
    if normalize:
        kept = kept / max(float(np.linalg.norm(kept)), 1e-12)
    return PooledVector(kept.astype("<f4").tobytes())
