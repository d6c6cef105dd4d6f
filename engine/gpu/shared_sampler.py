"""Samples with the sampling kernel when each rank computes the logits of a part of the
vocabulary: rank 0 receives them all and samples as a single process would; the other ranks receive
its tokens, with which they compute the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from engine.gpu.sampler import KernelSampler
from engine.sampling.device import Draws, is_always_plain
from engine.sampling.params import is_plain_greedy
from engine.sampling.sampler import Choice, Sampler
from engine.sampling.sharded import Vocabulary
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence


class SharedKernelSampler(KernelSampler):
    """``logits`` returns a rank's part, and ``choose`` is given one. On other ranks than rank 0,
    choices have rank 0's tokens and nothing else."""

    def __init__(
        self, sampler: Sampler, logits: Callable[[Tensor], Tensor], vocabulary: Vocabulary
    ) -> None:
        super().__init__(sampler, logits)
        self._vocabulary = vocabulary

    @property
    def leads(self) -> bool:
        return self._vocabulary.leads

    def is_plain(self, sequence: Sequence) -> bool:
        # The other ranks do not know what changes with a sequence's tokens.
        return is_always_plain(sequence)

    def gathered(self, logits: Tensor) -> Tensor | None:
        return self._vocabulary.gather(logits)

    def tell(self, tokens: Tensor) -> None:
        tokens.copy_(self._vocabulary.tell(tokens))

    def choose(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask],
        draws: Draws,
    ) -> Choice:
        """See ``KernelSampler.choose``. If every row only needs its most likely token, one small
        exchange takes the place of the logits."""
        if all(map(is_plain_greedy, sequences)):
            best, found = self._vocabulary.best(logits)
            return Choice(found.int(), best)
        whole = self.gathered(logits)
        tokens = torch.zeros(len(sequences), dtype=torch.int32, device=logits.device)
        if whole is None:
            self.tell(tokens)
            return Choice(tokens, tokens)
        try:
            choice = super().choose(whole, sequences, masks, draws)
            tokens = choice.tokens
        finally:
            # Even if sampling raised: the other ranks are waiting.
            self.tell(tokens)
        return choice
