"""A batch is placed as it is, whatever was there before, with padding around it."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from engine.attention.layout import Ragged
from engine.gpu.kernels.batch import StaticBatch, place_batch

BLOCKS = 16
CHUNKS = 4


def ints(chance: random.Random, device: torch.device, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    values = [chance.randrange(1, 1000) for _ in range(count)]
    return torch.tensor(values, dtype=torch.int32, device=device).view(shape)


def padded(values: list[int], size: int, padding: int = 0) -> list[int]:
    return values + [padding] * (size - len(values))


@pytest.mark.parametrize(
    ("decodes", "sizes", "columns", "size"),
    [
        (3, [5, 2, 130], 16, 192),
        (0, [7], 32, 16),  # a table with more columns than any sequence needs
        (8, [2, 2, 2, 2], 16, 32),
    ],
)
def test_a_batch_replaces_what_was_there(
    device: torch.device, decodes: int, sizes: list[int], columns: int, size: int
) -> None:
    chance = random.Random(size)
    static = StaticBatch.empty(rows=256, decodes=12, chunks=CHUNKS, blocks=BLOCKS, device=device)
    for field in StaticBatch.__slots__:
        getattr(static, field).fill_(77)
    rows = decodes + sum(sizes)
    ends = [decodes]
    for each in sizes:
        ends.append(ends[-1] + each)
    layout = Ragged(
        slots=ints(chance, device, rows),
        decode_lengths=ints(chance, device, decodes),
        decode_blocks=ints(chance, device, decodes, columns),
        chunk_lengths=ints(chance, device, len(sizes)),
        chunk_blocks=ints(chance, device, len(sizes), BLOCKS),
        cu_seqlens=torch.tensor(ends, dtype=torch.int32, device=device),
        longest=max(sizes),
    )
    tokens, positions = ints(chance, device, rows), ints(chance, device, rows)
    kept = torch.arange(decodes + len(sizes), device=device)
    place_batch(tokens, positions, layout, kept, static, size)

    most = static.decodes(size)
    assert most == min(size, 12)
    for source, target, end, padding in (
        (tokens, static.token_ids, size, 0),
        (positions, static.positions, size, 0),
        (layout.slots, static.slots, size, -1),
        (layout.decode_lengths, static.lengths, most, 0),
        (kept, static.kept, most, 0),
        (layout.chunk_lengths, static.chunk_lengths, CHUNKS, 0),
        (layout.cu_seqlens, static.cu_seqlens, CHUNKS + 1, rows),  # no rows for further chunks
    ):
        assert target[:end].tolist() == padded(source.tolist(), end, padding)
        assert (target[end:] == 77).all()
    for source, target in (
        (layout.decode_blocks, static.tables),
        (layout.chunk_blocks, static.chunk_tables),
    ):
        assert torch.equal(target[: len(source)], source[:, :BLOCKS])
        assert (target[len(source) :] == 77).all()


def test_an_empty_batch_stores_nothing_and_has_no_chunks(device: torch.device) -> None:
    static = StaticBatch.empty(rows=32, decodes=4, chunks=2, blocks=16, device=device)
    layout = static.layout(16)
    assert layout.slots.tolist() == [-1] * 16
    assert layout.decode_lengths.tolist() == [0] * 4
    assert layout.cu_seqlens.tolist() == [0, 0, 0]
    assert layout.longest == 16
