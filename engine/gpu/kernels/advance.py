"""The state of decode rows on the device: advances it after a step and updates changed rows."""

import triton
import triton.language as tl
from torch import Tensor

from engine.gpu.kernels.dependent import await_inputs
from engine.gpu.kernels.launch import early_launch, warps_for

_BLOCK = 128
_COLUMNS = 256

# Words of a row's record for ``place_rows``; its block table follows.
TOKEN, SOURCE, COUNTER, TEMPERATURE, LOG_MIN_P, TOP_K, TOP_P, SEED = 0, 1, 2, 3, 4, 5, 6, 8
HEADER = 16


@triton.jit
def _advance(
    counters,
    tables,
    positions,
    lengths,
    slots,
    table_stride,
    rows,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    await_inputs(EARLY)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = row < rows
    counter = tl.load(counters + row, mask=exists, other=-2)
    lives = counter >= -1
    position = tl.where(lives, counter + 1, 0)
    place = row.to(tl.int64) * table_stride + position // BLOCK_SIZE
    block = tl.load(tables + place, mask=exists & lives, other=0)
    slot = tl.where(lives, block * BLOCK_SIZE + position % BLOCK_SIZE, -1)
    tl.store(counters + row, position, mask=exists & lives)
    tl.store(positions + row, position, mask=exists)
    tl.store(lengths + row, tl.where(lives, position + 1, 0), mask=exists)
    tl.store(slots + row, slot, mask=exists)


def advance(
    counters: Tensor,
    tables: Tensor,
    positions: Tensor,
    lengths: Tensor,
    slots: Tensor,
    *,
    block_size: int,
) -> None:
    """Advance each row to its next token: ``counters`` int32 [rows], the last computed position,
    increases by one; ``positions``, ``lengths`` and ``slots`` (int32 [rows]) are set from it and
    the row's block table in ``tables`` int32 [rows, blocks]. A counter below -1 marks the row as
    padding, with length 0 and slot -1."""
    rows = counters.shape[0]
    block = min(_BLOCK, max(16, triton.next_power_of_2(rows)))
    _advance[(triton.cdiv(rows, block),)](
        counters,
        tables,
        positions,
        lengths,
        slots,
        tables.stride(0),
        rows,
        BLOCK_SIZE=block_size,
        BLOCK=block,
        **early_launch(),
        num_warps=warps_for(block),
    )


@triton.jit(do_not_specialize=["columns"])
def _place_rows(
    records,
    previous,
    tokens,
    counters,
    temperature,
    log_min_p,
    top_k,
    top_p,
    seeds,
    tables,
    record_stride,
    table_stride,
    columns,
    HEADER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copies words unchanged: a 64-bit value arrives as a pair of them."""
    row = tl.program_id(0)
    record = records + row.to(tl.int64) * record_stride
    source = tl.load(record + 1)
    token = tl.load(record)
    kept = tl.load(previous + tl.maximum(source, 0), mask=source >= 0, other=0)
    tl.store(tokens + row, tl.where(source >= 0, kept, token))
    tl.store(counters + row, tl.load(record + 2))
    tl.store(temperature + row, tl.load(record + 3))
    tl.store(log_min_p + row, tl.load(record + 4))
    tl.store(top_k + row, tl.load(record + 5))
    pair = tl.arange(0, 2)
    tl.store(top_p + 2 * row + pair, tl.load(record + 6 + pair))
    tl.store(seeds + 2 * row + pair, tl.load(record + 8 + pair))
    table = tables + row.to(tl.int64) * table_stride
    for first in range(0, columns, BLOCK):
        places = first + tl.arange(0, BLOCK)
        blocks = tl.load(record + HEADER + places, mask=places < columns, other=0)
        tl.store(table + places, blocks, mask=places < columns)


def place_rows(
    records: Tensor,
    previous: Tensor,
    tokens: Tensor,
    counters: Tensor,
    sampling: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    tables: Tensor,
) -> None:
    """Set row i from ``records`` int32 [rows, HEADER + blocks].

    A record consists of the row's newest token, or, if the next word is not negative, its index in
    ``previous`` (int32); the counter (see ``advance``); the bits of its sampling parameters in the
    format of ``engine.sampling.device.SamplingTensors``; its block table.
    """
    rows, width = records.shape
    _place_rows[(rows,)](
        records,
        previous,
        tokens,
        counters,
        *(column.view(tokens.dtype) for column in sampling),
        tables,
        records.stride(0),
        tables.stride(0),
        width - HEADER,
        HEADER=HEADER,
        BLOCK=_COLUMNS,
        num_warps=1,
    )
