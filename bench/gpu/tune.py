"""Searches better tile sizes (engine/gpu/kernels/launch.py) for this device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from bench.gpu.kernels import BF16, Contexts, decode, prefill
from bench.gpu.model import MODELS
from bench.gpu.parts import matrices
from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine
from engine.gpu.kernels.launch import SKINNY, DecodeTiles, RaggedTiles, SkinnyTiles
from engine.gpu.kernels.skinny import Norm, skinny_product

SHAPES = {64: (32, 8, 64), 128: (32, 8, 128), 256: (16, 8, 256)}


def tune(report: Report, machine: Machine, kernel: str, head_dims: list[int]) -> None:
    """Add a row for each head size, or number of rows of ``skinny``: the best entries in order, and
    the time of the table's own."""
    if kernel == "skinny":
        for rows, is_gated in SKINNY:
            name = f"tune skinny {rows} {'gated' if is_gated else 'plain'}"
            report.add(name, partial(_skinny, rows, machine, is_gated=is_gated))
        return
    for head_dim in head_dims:
        measure = _decode if kernel == "decode" else _ragged
        report.add(f"tune {kernel} {head_dim}", partial(measure, head_dim, machine))


def _decode(head_dim: int, machine: Machine) -> Row:
    """Sum the times of a full batch of long contexts, a single one, and many short ones."""
    shape = SHAPES[head_dim]
    works = [Contexts(64, 8192, *shape), Contexts(1, 8192, *shape), Contexts(256, 512, *shape)]
    found: list[tuple[float, str]] = []
    for keys, warps, stages, programs in itertools.product(
        (32, 64, 128), (2, 4, 8), (3, 5), (4, 8)
    ):
        tiles = DecodeTiles(keys, warps, stages, programs)
        found += _times(str(tiles), (decode(work, machine, tiles) for work in works))
    table = sum(decode(work, machine)["us"] for work in works)
    return {"table_us": table, "best": sorted(found)[:5]}


def _ragged(head_dim: int, machine: Machine) -> Row:
    shape = SHAPES[head_dim]
    works = [Contexts(1, 8192, *shape), Contexts(8, 512, *shape)]
    found: list[tuple[float, str]] = []
    for rows, keys, warps, stages in itertools.product(
        (64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4)
    ):
        tiles = RaggedTiles(rows, keys, warps, stages)
        found += _times(str(tiles), (prefill(work, machine, tiles) for work in works))
    table = sum(prefill(work, machine)["us"] for work in works)
    return {"table_us": table, "best": sorted(found)[:5]}


def _skinny(rows: int, machine: Machine, *, is_gated: bool) -> Row:
    """Sum the times of the products of a layer of each model."""
    found: list[tuple[float, str]] = []
    for columns, (depth, warps) in itertools.product(
        (1, 2, 4, 8), ((512, 2), (512, 4), (1024, 4), (2048, 8))
    ):
        tiles = SkinnyTiles(columns, depth, warps)
        found += _times(str(tiles), _products(rows, machine, tiles, is_gated=is_gated))
    table = sum(row["us"] for row in _products(rows, machine, None, is_gated=is_gated))
    return {"table_us": table, "best": sorted(found)[:5]}


def _products(
    rows: int, machine: Machine, tiles: SkinnyTiles | None, *, is_gated: bool
) -> Iterator[Row]:
    for model in MODELS:
        for name, (inputs, outputs) in matrices(model, machine).items():
            if name == "logits" or (name == "gate_up") != is_gated:
                continue
            x = torch.randn(rows, inputs, device=machine.device, dtype=BF16)
            gain = torch.ones(inputs, device=machine.device, dtype=BF16)
            residual = torch.zeros(rows, outputs, device=machine.device, dtype=BF16)
            options: dict[str, Any] = {"tiles": tiles}
            if name in ("qkv", "gate_up"):
                options["norm"] = Norm(gain, 1e-6)
            if is_gated:
                options["activation"] = "silu"
            elif name != "qkv":
                options["residual"] = residual
            shape = (machine.copies(inputs * outputs * 2) + 1, outputs, inputs)
            weights = torch.randn(shape, device=machine.device, dtype=BF16)
            calls = [partial(skinny_product, x, weight, **options) for weight in weights]
            yield {"us": machine.seconds(calls, rounds=5) * 1e6}


def _times(entry: str, rows: Iterator[Row]) -> list[tuple[float, str]]:
    """Return the entry's total time in microseconds; nothing if the device has too little memory
    for it."""
    try:
        total = sum(row["us"] for row in rows)
    except OutOfResources:
        return []
    print(f"  {total:10.1f} us  {entry}", flush=True)
    return [(round(total, 1), entry)]
