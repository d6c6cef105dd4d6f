"""Decode steps that keep their whole state on the device.

Most steps compute one token for each of the same sequences as the previous step. Tokens, positions,
lengths, block tables and sampling parameters then stay on the device. Per padded batch size there
are two CUDA graphs: in one, a kernel increments counters and the forward pass follows, up to the
logits; the other samples. Only newly added blocks are sent. A step can be launched before the last
one's tokens have reached the host. When rows are added, removed or moved, one copy and one kernel
update the state.

Rows that need more than the sampling kernel does (see ``KernelSampler.is_plain``) are sampled
again, by themselves, once the host knows their last tokens; the others' tokens are not touched. Of
several ranks, the first samples and sends the others the tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Set
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.layout import Ragged
from engine.attention.packing import ALIGNMENT
from engine.constraint.masks import RowMasks, wait_for_masks
from engine.device.sending import sent, sent_one
from engine.gpu.graphs import graph_replays, padded_sizes
from engine.gpu.kernels import advance as state
from engine.gpu.kernels.sampling import sample
from engine.gpu.sampler import KernelSampler, Revision
from engine.run.launched import NewestTokens, on_device
from engine.sampling.device import Draws, SamplingTensors, sampling_columns
from engine.sampling.sampler import Choice
from engine.sharding.collectives import ALONE, Collectives
from engine.step.sequence import Sequence
from engine.step.step import PENDING, Sampled, ScheduledSequence, StepResult

if TYPE_CHECKING:
    from engine.gpu.graphs import GraphPool
    from engine.gpu.llama import KernelLlama

# A counter that marks a row as padding.
_IDLE = -(1 << 30)

Identity = tuple[int, int]


class SteadyStep:
    """See ``engine.step.step.StepUnderWay``. The tokens of plain rows alone are sampled when it is
    launched: they depend only on earlier tokens, which are on the device."""

    def __init__(
        self,
        sequences: Items[Sequence],
        device: torch.device,
        choose: Callable[[Set[int]], tuple[Choice, RowMasks]],
        choice: Choice | None,
    ) -> None:
        """``choice`` None: it is made by ``choose``, given the uids of sequences to skip."""
        self._sequences = sequences
        self._device = device
        self._choose = choose
        self._choice = choice
        self._masks = RowMasks()

    def sample(self, skipped: Set[int]) -> None:
        """The caller ignores the tokens of sequences in ``skipped``."""
        if self._choice is None:
            with on_device(self._device):
                self._choice, self._masks = self._choose(skipped)

    def result(self) -> StepResult:
        assert self._choice is not None
        with on_device(self._device):
            sampled: list[Sampled] = [*self._choice.read()]
        for row, why in self._masks.withheld.items():
            sampled[row] = why
        return StepResult(sampled)

    def newest(self) -> NewestTokens | None:
        """The result is valid until the step after the next is launched. None: nothing was
        sampled."""
        if self._choice is None:
            return None
        places = {sequence.uid: row for row, sequence in enumerate(self._sequences)}
        return NewestTokens(places, self._choice.tokens)


@dataclass(slots=True)
class _Row:
    """The host's view of a row on the device."""

    identity: Identity
    start: int  # position that it computes next
    num_blocks: int  # of its table that are on the device


class SteadyDecode:
    """Launches decode steps. Not thread-safe; everything runs on the current stream."""

    def __init__(
        self,
        decoder: KernelLlama,
        cache: PagedKVCache,
        sampler: KernelSampler,
        *,
        max_rows: int,
        max_positions: int,
        vocab_size: int,
        device: torch.device,
        pool: GraphPool | None = None,
        collectives: Collectives = ALONE,
    ) -> None:
        """``max_positions``: tokens of the longest sequence."""
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler
        self._vocab_size = vocab_size
        self._device = device
        self._sizes = padded_sizes(max_rows)
        largest = self._sizes[-1]
        width = -(-max_positions // cache.block_size)
        width += -width % ALIGNMENT

        def ints(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self._tokens, self._bests = ints(largest), ints(largest).view(torch.float32)
        self._counters = torch.full_like(self._tokens, _IDLE)
        self._positions, self._lengths, self._slots = ints(largest), ints(largest), ints(largest)
        self._tables = ints(largest, width)
        self._sampling = SamplingTensors(
            temperature=ints(largest).view(torch.float32),
            log_min_p=ints(largest).view(torch.float32),
            top_k=ints(largest),
            top_p=ints(2 * largest).view(torch.float64),
            seeds=ints(2 * largest).view(torch.int64),
        )
        self._logits = torch.zeros(
            largest if sampler.leads else 0, vocab_size, dtype=decoder.dtype, device=device
        )
        # What this rank computes of them: all, if it is alone.
        self._own_logits = self._logits
        if decoder.num_logits != vocab_size:
            self._own_logits = self._logits.new_zeros(largest, decoder.num_logits)
        self._rows: list[_Row] = []  # empty: the state on the device is invalid
        with torch.inference_mode():
            self._compute, self._draw = graph_replays(
                [self._compute_logits, self._sample_rows],
                self._sizes,
                device,
                pool=pool,
                collectives=collectives,
            )

    def accepts(self, items: Items[ScheduledSequence]) -> bool:
        """True if all ``items`` compute and sample one token each."""
        return 0 < len(items) <= self._sizes[-1] and all(
            item.num_tokens == 1 and item.completes and item.sequence.embed is None
            for item in items
        )

    def launch(
        self, items: Items[ScheduledSequence], newest: NewestTokens | None = None
    ) -> SteadyStep:
        """Launch a step of ``items`` that it ``accepts``, and return without waiting for it.

        Tokens that are ``PENDING`` are those of the last step launched, here or elsewhere, which
        left them in ``newest``. Block tables must have room for the items' tokens. Raises KeyError
        for a pending token that the last step does not sample.
        """
        with torch.inference_mode():
            if self._continues(items):
                self._add_blocks(items)
            else:
                self._arrange(items, newest)
            sequences = [item.sequence for item in items]
            is_plain = all(map(self._sampler.is_plain, sequences))
            size = self._sizes[bisect_left(self._sizes, len(items))]
            try:
                self._compute(size)
                self._draw(size)
            except BaseException:
                self.forget()
                raise
            for row in self._rows:
                row.start += 1
            return SteadyStep(
                sequences,
                self._device,
                partial(self._choose, sequences),
                self._choice(len(items), Revision()) if is_plain else None,
            )

    def forget(self) -> None:
        """Invalidate the state on the device, because a different step comes in between."""
        self._rows = []

    # --- the step ------------------------------------------------------------------------------

    def _compute_logits(self, size: int) -> None:
        """Compute the logits of the first ``size`` rows; this is what a graph records."""
        tables, lengths, slots = self._tables[:size], self._lengths[:size], self._slots[:size]
        positions = self._positions[:size]
        state.advance(
            self._counters[:size],
            tables,
            positions,
            lengths,
            slots,
            block_size=self._cache.block_size,
        )
        nothing = lengths[:0]
        ragged = Ragged(slots, lengths, tables, nothing, nothing, nothing, longest=0)
        hidden = self._decoder.hidden_states(self._tokens[:size], positions, self._cache, ragged)
        own = self._decoder.narrow_logits(hidden, self._own_logits[:size])
        logits = self._sampler.gathered(own)
        if logits is not None and logits is not own:
            self._logits[:size].copy_(logits)

    def _sample_rows(self, size: int) -> None:
        """Sample for them; this is recorded, too."""
        tokens = self._tokens[:size]
        if self._sampler.leads:
            draws = self._draws(size)
            sample(
                self._logits[:size],
                draws.params,
                draws.positions,
                tokens=tokens,
                bests=self._bests[:size],
            )
        self._sampler.tell(tokens)

    def _draws(self, rows: int) -> Draws:
        # A token's position equals the context length of its predecessor.
        return Draws(self._sampling.rows(rows), self._lengths[:rows])

    def _choose(self, sequences: Items[Sequence], skipped: Set[int]) -> tuple[Choice, RowMasks]:
        """Sample the last step's special rows again. No other step has been launched since."""
        rows, tokens = len(sequences), self._tokens[: len(sequences)]
        masks = wait_for_masks(sequences)
        revision = Revision()
        try:
            try:
                if self._sampler.leads:
                    revision = self._sampler.revise(
                        self._logits[:rows],
                        sequences,
                        masks.ready,
                        self._draws(rows),
                        tokens,
                        self._bests[:rows],
                        skipped=skipped,
                    )
            finally:
                # Even if that raised: the other ranks are waiting.
                self._sampler.tell(tokens)
            return self._choice(rows, revision), masks
        except BaseException:
            self.forget()
            raise

    def _choice(self, rows: int, revision: Revision) -> Choice:
        """Return the choice, to be copied to the host before the next step overwrites it."""
        tokens, bests = self._tokens[:rows], self._bests[:rows]
        if self._device.type != "cuda":
            tokens, bests = tokens.clone(), bests.clone()
        return Choice(tokens, bests, *revision)

    # --- rows ----------------------------------------------------------------------------------

    def _continues(self, items: Items[ScheduledSequence]) -> bool:
        return len(items) == len(self._rows) and all(
            row.start == item.start and row.identity == _identity(item)
            for row, item in zip(self._rows, items, strict=True)
        )

    def _add_blocks(self, items: Items[ScheduledSequence]) -> None:
        width = self._tables.shape[1]
        places: list[int] = []
        blocks: list[int] = []
        for number, (row, item) in enumerate(zip(self._rows, items, strict=True)):
            table = item.sequence.block_table
            if len(table) > row.num_blocks:
                first = number * width
                places += range(first + row.num_blocks, first + len(table))
                blocks += table[row.num_blocks :]
                row.num_blocks = len(table)
        if places:
            index, values = sent([np.array(places), np.array(blocks, np.int32)], self._device)
            self._tables.view(-1).index_copy_(0, index, values)

    def _arrange(self, items: Items[ScheduledSequence], newest: NewestTokens | None) -> None:
        places = {} if newest is None else newest.places
        records = sent_one(self._records(items, places), self._device)
        # A copy, because rows may change places.
        before = self._tokens if newest is None else newest.tokens.to(torch.int32, copy=True)
        sampling = self._sampling
        state.place_rows(
            records,
            before,
            self._tokens,
            self._counters,
            (
                sampling.temperature,
                sampling.log_min_p,
                sampling.top_k,
                sampling.top_p,
                sampling.seeds,
            ),
            self._tables,
        )
        self._rows = [
            _Row(_identity(item), item.start, len(item.sequence.block_table)) for item in items
        ]

    def _records(
        self, items: Items[ScheduledSequence], places: Mapping[int, int]
    ) -> NDArray[np.int32]:
        """Return the records for ``place_rows``, padded to one of the recorded sizes."""
        size = self._sizes[bisect_left(self._sizes, len(items))]
        width = max(len(item.sequence.block_table) for item in items)
        records = np.zeros((size, state.HEADER + width + -width % ALIGNMENT), dtype=np.int32)
        records[:, state.SOURCE] = -1
        records[:, state.COUNTER] = _IDLE
        columns = sampling_columns([item.sequence.params for item in items], self._vocab_size)
        for first, column in zip(
            (state.TEMPERATURE, state.LOG_MIN_P, state.TOP_K, state.TOP_P, state.SEED),
            columns,
            strict=True,
        ):
            words = column.view(np.int32).reshape(len(items), -1)
            records[: len(items), first : first + words.shape[1]] = words
        for record, item in zip(records[: len(items)], items, strict=True):
            sequence = item.sequence
            token = sequence.token_ids[item.start]
            if token == PENDING:
                record[state.SOURCE] = places[sequence.uid]
            else:
                record[state.TOKEN] = token
            record[state.COUNTER] = item.start - 1
            table = sequence.block_table
            record[state.HEADER : state.HEADER + len(table)] = table
        return records


def _identity(item: ScheduledSequence) -> Identity:
    """Identify a sequence; after a preemption it has other blocks, so it counts as a different
    one."""
    return item.sequence.uid, item.sequence.num_preemptions
