"""What sequences require of their logits besides temperature and filters, kept on the device for
``engine.gpu.kernels.editing``: a step sends what is new."""

from __future__ import annotations

from collections.abc import Mapping, Set
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.device.sending import sent
from engine.gpu.kernels.editing import EditRecord, Edits, edit_rows
from engine.sampling.params import SequenceTables, is_penalised
from engine.sampling.penalties import TokenCounts
from engine.sampling.sampler import Sampler
from engine.step.mask import TokenMask
from engine.step.sequence import Sequence

_FEWEST_COUNTED = 256


@dataclass(slots=True)
class _Counted:
    """A sequence's token counts, with a copy on the device. ``new``: places that differ there."""

    counts: TokenCounts
    ids: Tensor  # int64 [capacity]
    values: Tensor  # float32 [capacity]
    new: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, counts: TokenCounts, device: torch.device) -> _Counted:
        """Copy all of them."""
        size = len(counts.tokens)
        capacity = max(_FEWEST_COUNTED, 2 * size)
        ids, values = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        ids[:size], values[:size] = counts.tokens, counts.counts
        ids_there, values_there = sent([ids, values], device)
        return cls(counts, ids_there, values_there)


class EditedRows(NamedTuple):
    """``logits`` float32 [rows, vocabulary]; ``rows`` and ``reported``, int64: on the device;
    ``restricted``: those in which tokens may be excluded."""

    logits: Tensor
    rows: Tensor
    reported: Tensor
    restricted: Set[int]


class RowEditor:
    """Call ``forget`` when a sequence leaves."""

    def __init__(self, sampler: Sampler) -> None:
        """``sampler``: keeps the tables of sequences with token lists."""
        self._sampler = sampler
        self._counted: dict[int, _Counted] = {}

    def forget(self, uid: int) -> None:
        self._counted.pop(uid, None)

    def edit(
        self,
        logits: Tensor,
        rows: Items[int],
        sequences: Items[Sequence],
        masks: Mapping[int, TokenMask],
        reported: Items[int],
    ) -> EditedRows:
        """Return a copy of ``rows`` of ``logits``, edited as ``sequences[row]`` and ``masks[row]``
        require. One copy is sent, ``rows`` and ``reported`` with it, and the host waits for
        nothing."""
        step = _Edited()
        for row in rows:
            sequence = sequences[row]
            step.add(
                row,
                sequence,
                masks.get(row),
                self._sampler.tables_of(sequence),
                self._count(sequence, logits.device) if is_penalised(sequence.params) else None,
            )
        sends = [np.array(rows, np.int64), np.array(reported, np.int64), *step.arrays()]
        rows_there, reported_there, *there = sent(sends, logits.device)
        edited = edit_rows(logits, Edits(*there), masks_only=step.masks_only)
        # Not before: if anything has failed, they are sent again.
        for counted in step.counted:
            counted.new.clear()
        return EditedRows(edited, rows_there, reported_there, step.restricted)

    def _count(self, sequence: Sequence, device: torch.device) -> _Counted:
        """Return a sequence's counts, up to date on the host."""
        counted = self._counted.get(sequence.uid)
        if counted is None:
            counts = TokenCounts(sequence.token_ids[: sequence.num_prompt_tokens])
            counts.update(sequence)
        else:
            counts = counted.counts
            # A token that came twice has one place.
            counted.new = [*dict.fromkeys((*counted.new, *counts.update(sequence)))]
            if len(counts.tokens) <= len(counted.ids):
                return counted
        counted = self._counted[sequence.uid] = _Counted.of(counts, device)
        return counted


class _Edited:
    """Collects a step's rows."""

    def __init__(self) -> None:
        self.counted: list[_Counted] = []
        self.restricted: set[int] = set()
        self._records: list[EditRecord] = []
        self._factors: list[tuple[float, float, float]] = []
        self._masks: list[TokenMask] = []
        self._endings: list[int] = []
        self._num_updates = 0

    def add(
        self,
        row: int,
        sequence: Sequence,
        mask: TokenMask | None,
        tables: SequenceTables | None,
        counted: _Counted | None,
    ) -> None:
        """``counted``: None without penalties."""
        record, params = EditRecord(row), sequence.params
        if mask is not None:
            record = record._replace(mask=len(self._masks))
            self._masks.append(mask)
        if tables is not None:
            record = self._with_tables(record, tables, sequence)
        if mask is not None or (tables is not None and tables.restricts):
            self.restricted.add(row)
        if counted is not None:
            record = record._replace(
                counted=counted.ids.data_ptr(),
                counts=counted.values.data_ptr(),
                num_counted=len(counted.counts.tokens),
                update=self._num_updates,
                num_updates=len(counted.new),
            )
            self._num_updates += len(counted.new)
            self.counted.append(counted)
        self._records.append(record)
        self._factors.append(
            (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
        )

    @property
    def masks_only(self) -> bool:
        return not any(record.edits_tokens for record in self._records)

    def arrays(self) -> list[NDArray[Any]]:
        """Return what must be sent, in the order of ``Edits``."""
        masks = np.stack(self._masks) if self._masks else np.zeros((1, 1), np.uint32)
        counted = self.counted
        return [
            np.array(self._records, np.int64),
            np.array(self._factors, np.float32),
            masks.view(np.int32),
            np.array(self._endings, np.int64),
            np.array([place for each in counted for place in each.new], np.int64),
            np.concatenate([_NO_IDS, *(each.counts.tokens[each.new] for each in counted)]),
            np.concatenate([_NO_VALUES, *(each.counts.counts[each.new] for each in counted)]),
        ]

    def _with_tables(
        self, record: EditRecord, tables: SequenceTables, sequence: Sequence
    ) -> EditRecord:
        if tables.hidden is not None:
            record = record._replace(hidden=tables.hidden.data_ptr())
        if tables.bad_words is not None:
            alone, ending = tables.bad_words.alone, tables.bad_words.ending(sequence.token_ids)
            record = record._replace(
                alone=alone.data_ptr(),
                num_alone=len(alone),
                ending=len(self._endings),
                num_ending=len(ending),
            )
            self._endings += ending
        if tables.stops is not None and sequence.num_output_tokens < sequence.params.min_tokens:
            record = record._replace(stops=tables.stops.data_ptr(), num_stops=len(tables.stops))
        if tables.bias is not None:
            ids, values = tables.bias
            record = record._replace(
                biased=ids.data_ptr(), biases=values.data_ptr(), num_biased=len(ids)
            )
        return record


_NO_IDS = np.zeros(0, np.int64)
_NO_VALUES = np.zeros(0, np.float32)
