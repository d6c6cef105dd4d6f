"""Contexts scattered over a paged cache, and attention to them written out in float64."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """The last ``count`` tokens of a context of ``length``."""

    length: int
    count: int = 1


@dataclass(frozen=True)
class Shape:
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 8


@dataclass(frozen=True)
class Scores:
    """What happens to scores before their softmax."""

    window: int | None = None
    soft_cap: float | None = None
    sinks: Tensor | None = None  # float32 [heads]
    scale: float = 0.3


@dataclass(frozen=True)
class Batch:
    """``blocks`` is one layer of a cache whose unused slots are NaN; ``query`` [rows, heads,
    head_dim] has a gap between rows, as a slice of a fused projection has."""

    query: Tensor
    blocks: Tensor
    tables: Tensor
    lengths: Tensor
    cu_seqlens: Tensor
    longest: int
    keys: list[Tensor]  # float64 [length, kv_heads, head_dim] of each context
    values: list[Tensor]


def make_batch(
    pieces: list[Piece],
    shape: Shape,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    seed: int = 0,
) -> Batch:
    torch.manual_seed(seed)
    size = shape.block_size
    needed = [-(-piece.length // size) for piece in pieces]
    free = random.Random(seed).sample(range(sum(needed) + 3), sum(needed) + 3)
    kind = (2, shape.kv_heads, size, shape.head_dim)
    blocks = torch.full((len(free), *kind), float("nan"), dtype=dtype)
    tables = torch.full((len(pieces), max(needed) + 2), -7, dtype=torch.int32)
    keys, values = [], []
    for row, (piece, count) in enumerate(zip(pieces, needed, strict=True)):
        context = torch.randn(2, piece.length, shape.kv_heads, shape.head_dim).to(dtype)
        for number in range(count):
            block = free.pop()
            tables[row, number] = block
            part = context[:, number * size : (number + 1) * size]
            blocks[block, :, :, : part.shape[1]] = part.transpose(1, 2)
        keys.append(context[0].double())
        values.append(context[1].double())
    counts = torch.tensor([0] + [piece.count for piece in pieces], dtype=torch.int32)
    rows = int(counts.sum())
    query = torch.randn(rows, shape.heads + 2, shape.head_dim).to(dtype)
    return Batch(
        query.to(device)[:, : shape.heads],
        blocks.to(device),
        tables.to(device),
        torch.tensor([piece.length for piece in pieces], dtype=torch.int32).to(device),
        counts.cumsum(0, dtype=torch.int32).to(device),
        max(piece.count for piece in pieces),
        keys,
        values,
    )


def attention(batch: Batch, pieces: list[Piece], scores: Scores) -> Tensor:
    """float64 [rows, heads * head_dim] on the CPU."""
    queries = batch.query.double().cpu()
    heads = queries.shape[1]
    out = []
    for place, (piece, keys, values) in enumerate(
        zip(pieces, batch.keys, batch.values, strict=True)
    ):
        first_row = int(batch.cu_seqlens[place])
        groups = heads // keys.shape[1]
        keys, values = (x.repeat_interleave(groups, dim=1) for x in (keys, values))
        for i in range(piece.count):
            end = piece.length - piece.count + i + 1
            first = 0 if scores.window is None else max(0, end - scores.window)
            row = queries[first_row + i]
            found = torch.einsum("hd,nhd->hn", row, keys[first:end]) * scores.scale
            if scores.soft_cap is not None:
                found = scores.soft_cap * torch.tanh(found / scores.soft_cap)
            if scores.sinks is not None:
                found = torch.cat((found, scores.sinks.double().cpu()[:, None]), 1)
            weights = found.softmax(-1)[:, : end - first]
            out.append(torch.einsum("hn,nhd->hd", weights, values[first:end]).flatten())
    return torch.stack(out)
