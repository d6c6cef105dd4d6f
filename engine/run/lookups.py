"""What a step looks up on the device besides its rows; sent in the batch's one copy."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.packing import Int64Array
from engine.sampling.device import Draws, SamplingTensors, sampling_columns
from engine.step.step import PENDING, ScheduledSequence


class SentLookups(NamedTuple):
    """See ``StepBatch``."""

    kept: Tensor | None
    sampling_rows: Tensor | None
    pending: tuple[Tensor, Tensor] | None
    draws: Draws | None


@dataclass(frozen=True, slots=True)
class Lookups:
    """The same on the host. ``num_states``: how many rows' final states are kept; ``targets`` and
    ``sources``: rows whose token is pending, and its place."""

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
        places: Mapping[int, int],
        *,
        every_row: bool,
    ) -> Lookups:
        """``items``: in batch order."""
        kept = None if every_row or len(items) == num_rows else last_rows
        targets, sources, sampling = [], [], []
        for number, item in enumerate(items):
            sequence = item.sequence
            if item.completes and sequence.embed is None:
                sampling.append(number)
            if sequence.token_ids[item.end - 1] == PENDING:
                targets.append(int(last_rows[number]))
                sources.append(places[sequence.uid])
        hidden_rows = last_rows if kept is None else np.arange(len(items))
        num_states = num_rows if kept is None else len(items)
        return cls(items, kept, num_states, hidden_rows, tuple(sampling), targets, sources)

    def arrays(self, draws_from: int | None) -> list[NDArray[Any]]:
        """Return what must be sent. ``draws_from``: the vocabulary's size, if the kernel samples;
        else its columns are empty."""
        chosen = [self.items[number] for number in self.sampling] if draws_from else []
        return [
            np.empty(0, np.int64) if self.kept is None else self.kept,
            self.hidden_rows[list(self.sampling)],
            np.array(self.targets, np.int64),
            np.array(self.sources, np.int64),
            np.array([item.end for item in chosen], np.int32),
            *sampling_columns([item.sequence.params for item in chosen], draws_from or 0),
        ]

    def sent(self, there: Items[Tensor]) -> SentLookups:
        """Return the device's side of ``arrays``."""
        kept, sampling_rows, targets, sources, positions, *columns = there
        takes_all = len(self.sampling) == self.num_states
        return SentLookups(
            None if self.kept is None else kept,
            None if takes_all else sampling_rows,
            (targets, sources) if self.targets else None,
            Draws(SamplingTensors(*columns), positions) if positions.shape[0] else None,
        )
