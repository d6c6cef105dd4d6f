"""Searches better tile sizes (engine/gpu/kernels/launch.py) for this device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from triton.runtime.errors import OutOfResources

from bench.gpu.kernels import Contexts, decode, prefill
from bench.gpu.report import Report, Row
from bench.gpu.timing import Machine
from engine.gpu.kernels.launch import DecodeTiles, RaggedTiles

SHAPES = {64: (32, 8, 64), 128: (32, 8, 128), 256: (16, 8, 256)}


def tune(report: Report, machine: Machine, kernel: str, head_dims: list[int]) -> None:
    """Add a row for each head size: the best entries in order, and the time of the table's own."""
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


def _times(entry: str, rows: Iterator[Row]) -> list[tuple[float, str]]:
    """Return the entry's total time in microseconds; nothing if the device has too little memory
    for it."""
    try:
        total = sum(row["us"] for row in rows)
    except OutOfResources:
        return []
    print(f"  {total:10.1f} us  {entry}", flush=True)
    return [(round(total, 1), entry)]
