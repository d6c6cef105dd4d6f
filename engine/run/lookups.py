"""What a step looks up on the device besides its rows; sent in the batch's one copy."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.packing import Int64Array
from engine.sampling.device import Draws, SamplingTensors, sampling_columns
from engine.step.step import PENDING, ScheduledSequence


class SentLookups(NamedTuple):
    """See ``StepBatch``."""

    kept: Tensor | None = None
    sampling_rows: Tensor | None = None
    pending: tuple[Tensor, Tensor] | None = None
    draws: Draws | None = None


_NOTHING_SENT = SentLookups()


class Lookups(NamedTuple):
    """The same on the host. ``num_states``: how many rows' final states are kept; ``targets`` and
    ``sources``: rows whose token is pending, and its place. Most steps on a CPU look up nothing,
    and must not pay for it."""

    items: Items[ScheduledSequence]
    kept: Int64Array | None
    num_states: int
    hidden_rows: Int64Array
    sampling: tuple[int, ...]
    targets: Items[int]
    sources: Items[int]

    @classmethod
    def of(
        cls,
        items: Items[ScheduledSequence],
        last_rows: Int64Array,
        num_rows: int,
        places: Mapping[int, int] | None,
        *,
        every_row: bool,
    ) -> Lookups:
        """``items``: in batch order. ``places``: None if no token is pending."""
        kept = None if every_row or len(items) == num_rows else last_rows
        hidden_rows = last_rows if kept is None else np.arange(len(items))
        num_states = num_rows if kept is None else len(items)
        sampling = tuple(
            [
                number
                for number, item in enumerate(items)
                if item.completes and item.sequence.embed is None
            ]
        )
        targets, sources = [], []
        if places is not None:
            for row, item in zip(last_rows.tolist(), items, strict=True):
                if item.sequence.token_ids[item.end - 1] == PENDING:
                    targets.append(row)
                    sources.append(places[item.sequence.uid])
        return cls(items, kept, num_states, hidden_rows, sampling, targets, sources)

    @property
    def _samples_all(self) -> bool:
        return len(self.sampling) == self.num_states

    def arrays(self, draws_from: int | None) -> list[NDArray[Any]]:
        """Return what must be sent, often nothing. ``draws_from``: the vocabulary's size, if the
        kernel samples."""
        arrays: list[NDArray[Any]] = []
        if self.kept is not None:
            arrays.append(self.kept)
        if not self._samples_all:
            arrays.append(self.hidden_rows[list(self.sampling)])
        if self.targets:
            arrays += [np.array(self.targets, np.int64), np.array(self.sources, np.int64)]
        if draws_from and self.sampling:
            chosen = [self.items[number] for number in self.sampling]
            arrays.append(np.array([item.end for item in chosen], np.int32))
            arrays += sampling_columns([item.sequence.params for item in chosen], draws_from)
        return arrays

    def sent(self, there: Items[Tensor]) -> SentLookups:
        """Return the device's side of ``arrays``."""
        if not there:
            return _NOTHING_SENT
        left = list(there)
        kept = None if self.kept is None else left.pop(0)
        sampling_rows = None if self._samples_all else left.pop(0)
        pending = (left.pop(0), left.pop(0)) if self.targets else None
        draws = Draws(SamplingTensors(*left[1:]), left[0]) if left else None
        return SentLookups(kept, sampling_rows, pending, draws)
