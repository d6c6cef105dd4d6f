"""Steps with parts of prompts in them, as recorded passes of a fixed number of rows.

Launching such a step kernel by kernel takes the host longer than a device needs for it, up to some
hundreds of tokens. The batch is sent in one copy as before; a kernel then places it where the
next larger recorded pass reads it. How its rows are divided among sequences is read on the device.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention.cache import PagedKVCache
from engine.attention.layout import Ragged
from engine.attention.packing import ALIGNMENT
from engine.gpu.graphs import graph_replays, token_sizes
from engine.gpu.kernels.batch import StaticBatch, place_batch
from engine.run.batch import StepBatch
from engine.sharding.collectives import ALONE, Collectives

if TYPE_CHECKING:
    from engine.gpu.graphs import GraphPool
    from engine.gpu.llama import KernelLlama

# Tokens of the largest recorded step: with more, the device takes longer than the launches.
MOST_RECORDED_TOKENS = 1024
# Parts of prompts in a step. The attention kernel is launched for so many of the longest, most of
# which it finds empty.
MOST_CHUNKS = 8


class MixedSteps:
    """Computes the final states of steps that it ``fits``. Not thread-safe; everything runs on the
    current stream."""

    def __init__(
        self,
        decoder: KernelLlama,
        cache: PagedKVCache,
        *,
        max_rows: int,
        max_tokens: int,
        max_positions: int,
        device: torch.device,
        pool: GraphPool | None = None,
        collectives: Collectives = ALONE,
    ) -> None:
        """``max_rows``: sequences in a step; ``max_tokens``: tokens in a step; ``max_positions``:
        tokens of the longest sequence."""
        self._decoder = decoder
        self._cache = cache
        self._most_tokens = min(max_tokens, MOST_RECORDED_TOKENS)
        if decoder.fewest_unrecorded is not None:
            self._most_tokens = min(self._most_tokens, decoder.fewest_unrecorded - 1)
        self._sizes = token_sizes(self._most_tokens)
        width = -(-max_positions // cache.block_size)
        self._static = StaticBatch.empty(
            rows=self._sizes[-1],
            decodes=max_rows,
            chunks=MOST_CHUNKS,
            blocks=width + -width % ALIGNMENT,
            device=device,
        )
        self._hidden = torch.zeros(
            max_rows, decoder.hidden_size, dtype=decoder.dtype, device=device
        )
        with torch.inference_mode():
            [self._compute] = graph_replays(
                [self._forward], self._sizes, device, pool=pool, collectives=collectives
            )

    def fits(self, batch: StepBatch) -> bool:
        """True if there is a recorded step for as many tokens, sequences and parts of prompts, and
        of each sequence the last final state alone is needed."""
        layout = batch.layout
        return (
            isinstance(layout, Ragged)
            and 0 < len(layout.sizes) <= MOST_CHUNKS
            and len(batch.items) <= self._static.lengths.shape[0]
            and batch.token_ids.shape[0] <= self._most_tokens
            and batch.kept is not None
        )

    def hidden_states(self, batch: StepBatch) -> Tensor:
        """Return the final states that ``batch`` keeps, valid until the next call."""
        assert isinstance(batch.layout, Ragged)
        assert batch.kept is not None
        size = self._sizes[bisect_left(self._sizes, batch.token_ids.shape[0])]
        place_batch(batch.token_ids, batch.positions, batch.layout, batch.kept, self._static, size)
        self._compute(size)
        return self._hidden[: batch.kept.shape[0]]

    def _forward(self, size: int) -> None:
        """Compute the first ``size`` rows; this is what a graph records."""
        static = self._static
        rows = static.decodes(size)
        hidden = self._decoder.hidden_states(
            static.token_ids[:size],
            static.positions[:size],
            self._cache,
            static.layout(size),
            static.kept[:rows],
        )
        self._hidden[:rows].copy_(hidden)
