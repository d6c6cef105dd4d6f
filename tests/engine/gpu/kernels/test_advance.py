"""Rows advance by one token, and new rows are as their records say."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.kernels.advance import HEADER, advance, place_rows
from engine.messages import SamplingParams
from engine.sampling.device import sampling_tensors


@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("block_size", [8, 32])
def test_each_row_advances_by_one_position_and_padding_does_not(
    device: torch.device, rows: int, block_size: int
) -> None:
    chance = random.Random(rows)
    # The last computed position: -1 before the first token, below that padding.
    counters = [
        chance.choice([-1, -2, -7, block_size - 1, 3 * block_size - 2]) for _ in range(rows)
    ]
    blocks = [[chance.randrange(1000) for _ in range(4)] for _ in range(rows)]
    tensors = [torch.full((rows,), 77, dtype=torch.int32, device=device) for _ in range(3)]
    counting = torch.tensor(counters, dtype=torch.int32, device=device)
    tables = torch.tensor(blocks, dtype=torch.int32, device=device)
    advance(counting, tables, *tensors, block_size=block_size)
    positions, lengths, slots = (tensor.tolist() for tensor in tensors)
    for row, before in enumerate(counters):
        found = (counting[row].item(), positions[row], lengths[row], slots[row])
        if before < -1:
            assert found == (before, 0, 0, -1)
        else:
            now = before + 1
            slot = blocks[row][now // block_size] * block_size + now % block_size
            assert found == (now, now, now + 1, slot)


def test_rows_become_what_their_records_say_to_the_last_bit(device: torch.device) -> None:
    wanted = [
        SamplingParams(
            max_tokens=1, temperature=0.7, min_p=0.1, top_k=3, top_p=0.1, seed=2**62 + 5
        ),
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, top_p=1 - 2**-50, seed=2**63 - 1),
    ]
    rows, columns = len(wanted), 300  # more blocks than the kernel copies at once
    asked = sampling_tensors(wanted, 1000, torch.device("cpu"))
    parts = (asked.temperature, asked.log_min_p, asked.top_k, asked.top_p, asked.seeds)
    records = torch.zeros(rows, HEADER + columns, dtype=torch.int32)
    records[:, 0] = torch.tensor([11, 12, 13])  # tokens
    records[:, 1] = torch.tensor([-1, 4, 0])  # the index of the token instead
    records[:, 2] = torch.tensor([9, -2, -1])  # counters
    for first, column in zip((3, 4, 5, 6, 8), parts, strict=True):
        words = column.view(torch.int32).view(rows, -1)
        records[:, first : first + words.shape[1]] = words
    records[:, HEADER:] = torch.arange(rows * columns).view(rows, columns)

    # One row more than there are records: it stays as it is.
    found = [torch.full((rows + 1,), 5, dtype=part.dtype, device=device) for part in parts]
    tokens, counters = torch.full((2, rows + 1), 5, dtype=torch.int32, device=device)
    tables = torch.full((rows + 1, columns + 8), 5, dtype=torch.int32, device=device)
    previous = torch.arange(100, 110, dtype=torch.int32, device=device)
    sampling = (found[0], found[1], found[2], found[3], found[4])
    place_rows(records.to(device), previous, tokens, counters, sampling, tables)
    assert tokens.tolist() == [11, 104, 100, 5]
    assert counters.tolist() == [9, -2, -1, 5]
    for column, expected in zip(found, parts, strict=True):
        assert column.tolist() == [*expected.tolist(), 5]
    assert torch.equal(tables[:rows, :columns].cpu(), records[:, HEADER:])
    assert (tables[rows] == 5).all()
    assert (tables[:, columns:] == 5).all()
