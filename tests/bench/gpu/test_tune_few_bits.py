"""What a search has found is what kernels are launched with afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu import tune_few_bits
from bench.gpu.report import Report
from bench.gpu.timing import Ceilings, Machine
from bench.gpu.tune_few_bits import Found, Search, use
from engine.gpu.kernels import launch
from engine.gpu.kernels.launch import DotTiles, VectorTiles, dot_tiles, vector_tiles

MACHINE = Machine(torch.device("cpu"), Ceilings(1e12, 1e15))
WORST, BEST = DotTiles(16, 32, 4, 3, 2), DotTiles(16, 128, 8, 3, 4)
BEST_OF_128, BEST_ROW = DotTiles(16, 32, 2, 4, 8), VectorTiles(2, 64, 2)


def test_groups_of_128_have_their_own_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEW_BIT_ROW", "FEW_BIT_DOTS"):
        table = dict(getattr(launch, name))
        monkeypatch.setattr(launch, name, table)
        monkeypatch.setattr(tune_few_bits, name, table)
    path = tmp_path / "found.json"
    search = Search(Report(path, "", []), MACHINE)
    unused = torch.zeros(1)
    search.found = {
        ("int4", 16, "qkv"): Found(9.0, unused, {WORST: 8.0, BEST_OF_128: 5.0}),
        ("int4-32", 16, "qkv"): Found(9.0, unused, {WORST: 8.0, BEST: 6.0}),
        ("int4", 1, "qkv"): Found(9.0, unused, {BEST_ROW: 5.0}),
    }
    before = vector_tiles(1, 4096, 6144, 4, 32)
    path.write_text(json.dumps({"tiles": search.chosen()}))
    use(path)
    assert dot_tiles(16, 4096, 6144, 4, 128, 132) == BEST_OF_128
    assert dot_tiles(16, 4096, 6144, 4, 32, 132) == BEST
    assert vector_tiles(1, 4096, 6144, 4, 128) == BEST_ROW
    assert vector_tiles(1, 4096, 6144, 4, 32) is before
