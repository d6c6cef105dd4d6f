"""Both attention kernels on a test's batch, and the shapes and scores they are tried with."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.gpu.paged import Batch, Scores, Shape
from engine.gpu.kernels.decode_attention import decode_attention
from engine.gpu.kernels.launch import DecodeTiles, RaggedTiles
from engine.gpu.kernels.ragged_attention import ragged_attention
from engine.gpu.kernels.ragged_parts import plan_parts


def decode(batch: Batch, scores: Scores, *, programs: int, keys: int = 16) -> Tensor:
    return decode_attention(
        batch.query,
        batch.blocks,
        batch.tables,
        batch.lengths,
        scale=scores.scale,
        window=scores.window,
        soft_cap=scores.soft_cap,
        sinks=scores.sinks,
        tiles=DecodeTiles(keys, 4, 2),
        programs=programs,
    )


def ragged(
    batch: Batch, scores: Scores, *, rows: int = 16, keys: int = 16, programs: int | None = None
) -> Tensor:
    """``programs``: divide the work for so many, down to a tile of keys each."""
    tiles = RaggedTiles(rows, keys, 4, 2)
    tokens, heads, head_dim = batch.query.shape
    parts = None
    if programs is not None:
        parts = plan_parts(
            *(batch.lengths, batch.cu_seqlens, batch.longest),
            rows=tokens,
            heads=heads,
            kv_heads=batch.blocks.shape[2],
            head_dim=head_dim,
            dtype=batch.query.dtype,
            window=scores.window,
            tiles=tiles,
            programs=programs,
            fewest_keys=keys,
            least_gain=1,
        )
    return ragged_attention(
        batch.query,
        batch.blocks,
        batch.tables,
        batch.lengths,
        batch.cu_seqlens,
        batch.longest,
        scale=scores.scale,
        window=scores.window,
        soft_cap=scores.soft_cap,
        sinks=scores.sinks,
        parts=parts,
        tiles=tiles,
    )


def assert_close(found: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found.double().cpu(), expected, atol=atol, rtol=1e-5)


SHAPES = [
    Shape(4, 2, 16, 8),
    Shape(4, 4, 64, 16),
    Shape(3, 1, 80, 16),
    Shape(8, 2, 96, 32),
    Shape(7, 1, 128, 64),
    Shape(2, 1, 256, 16),
]
KINDS = {
    "plain": Scores(),
    "window": Scores(window=21),
    "cap": Scores(soft_cap=1.5),
    "sinks": Scores(sinks=torch.tensor([0.5, -1.0, 2.0, 8.0])),
    "all": Scores(window=9, soft_cap=2.0, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
}


def on(scores: Scores, device: torch.device) -> Scores:
    sinks = None if scores.sinks is None else scores.sinks.to(device)
    return Scores(scores.window, scores.soft_cap, sinks, scores.scale)
