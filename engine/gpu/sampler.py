"""Samples with the sampling kernel, also in steps in which some rows need more than it does.

Such rows (penalties, grammars, biases, banned words, logprobs) are copied, edited by kernels and
sampled again by the same one, so that they cost the other rows nothing. The host waits for no
result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from collections.abc import Sequence as Items
from typing import NamedTuple

from torch import Tensor

from engine.gpu.edits import RowEditor
from engine.gpu.kernels.logprobs import gather_logprobs
from engine.gpu.kernels.sampling import sample
from engine.sampling.device import Draws, samples_on_device
from engine.sampling.logprobs import LogprobRows
from engine.sampling.sampler import Choice, Sampler
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence


class Revision(NamedTuple):
    """What ``Choice`` reports besides the tokens."""

    reported: Items[int] = ()
    logprobs: LogprobRows | None = None
    restricts: Callable[[int], bool] = lambda row: False


class KernelSampler:
    """Replaces ``Sampler.choose`` where kernels run. ``logits``: computes them from hidden states,
    in any float dtype."""

    def __init__(self, sampler: Sampler, logits: Callable[[Tensor], Tensor]) -> None:
        self._editor = RowEditor(sampler)
        self.logits = logits

    def forget(self, uid: int) -> None:
        """Drop the state of a sequence that has left."""
        self._editor.forget(uid)

    @property
    def leads(self) -> bool:
        """True on the rank that samples."""
        return True

    def is_plain(self, sequence: Sequence) -> bool:
        """True if the sequence's token needs no revision now. The same on every rank."""
        return samples_on_device(sequence)

    def gathered(self, logits: Tensor) -> Tensor | None:
        """Return what ranks have computed of ``logits`` as one, on the rank that samples."""
        return logits

    def tell(self, tokens: Tensor) -> None:
        """Overwrite ``tokens`` with those of the rank that samples."""

    def choose(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask],
        draws: Draws,
    ) -> Choice:
        """See ``Sampler.choose``; ``draws`` has a row for each of ``sequences``."""
        tokens, bests = sample(logits, draws.params, draws.positions)
        revision = self.revise(logits, sequences, masks, draws, tokens, bests)
        return Choice(tokens, bests, *revision)

    def revise(
        self,
        logits: Tensor,
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask],
        draws: Draws,
        tokens: Tensor,
        bests: Tensor,
        *,
        skipped: Set[int] = frozenset(),
    ) -> Revision:
        """Sample again, in ``tokens`` and ``bests``, for the rows that need more than the kernel
        does, except those of ``skipped`` (uids), whose tokens are not used."""
        special = [
            row
            for row, sequence in enumerate(sequences)
            if not samples_on_device(sequence) and sequence.uid not in skipped
        ]
        if not special:
            return Revision()
        reported = [row for row in special if sequences[row].params.logprobs is not None]
        edited = self._editor.edit(logits, special, sequences, masks, reported)
        sample(
            edited.logits,
            draws.params,
            draws.positions,
            rows=edited.rows,
            tokens=tokens,
            bests=bests,
        )
        logprobs = None
        if reported:
            tops = [sequences[row].params.logprobs or 0 for row in reported]
            raw = logits.index_select(0, edited.reported).float()
            logprobs = kernel_logprobs(raw, tokens.index_select(0, edited.reported), tops)
        return Revision(reported, logprobs, edited.restricted.__contains__)


def kernel_logprobs(logits: Tensor, tokens: Tensor, top: Items[int]) -> LogprobRows:
    """Return what ``engine.sampling.logprobs.logprob_rows`` does, without a log-softmax of the
    whole vocabulary. ``tokens``: int32."""
    values, ranks = gather_logprobs(logits, tokens)
    best, ids = logits.topk(min(max(top, default=0), logits.shape[1]), dim=1)
    mass = logits.gather(1, tokens.long().unsqueeze(1)) - values.unsqueeze(1)
    return LogprobRows(values, ranks, best - mass, ids, top)
