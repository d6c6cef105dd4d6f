"""Rows of several GPUs: where there is one, a reason takes their place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu import ranks
from bench.gpu.report import Report
from bench.gpu.timing import Ceilings, Machine


def test_as_many_ranks_as_divide_heads_evenly() -> None:
    found = {gpus: ranks.number_of_ranks(gpus) for gpus in (0, 1, 2, 3, 4, 7, 8, 16)}
    assert found == {0: 2, 1: 2, 2: 2, 3: 2, 4: 4, 7: 4, 8: 8, 16: 8}


def test_one_gpu_leaves_the_rows_out_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    report = Report(tmp_path / "gpu.json", "one GPU", [])
    ranks.measure(report, Machine(torch.device("cuda"), Ceilings(1e12, 1e15), False))
    assert [row["row"] for row in report.rows] == [
        *("tp2 llama-8b batch 1 ctx 256", "tp2 llama-8b batch 64 ctx 1024"),
        "tp2 llama-8b batch 1 ctx 256 by NCCL alone",
        "tp2 llama-8b batch 64 ctx 1024 by NCCL alone",
    ]
    assert {row["left_out"] for row in report.rows} == {"needs 2 GPUs, and here is 1"}
    assert not report.failed
    assert "- tp2 llama-8b batch 1 ctx 256: needs 2 GPUs" in (tmp_path / "gpu.md").read_text()


@pytest.mark.integration
def test_two_processes_on_a_cpu_run_a_row(tmp_path: Path) -> None:
    report = Report(tmp_path / "gpu.json", "dry", ["tp2 llama-8b batch 1 ctx 256"])
    ranks.measure(report, Machine(torch.device("cpu"), Ceilings(1e12, 1e15), True))
    names = [row["row"] for row in report.rows]
    assert names[:2] == ["load tp2 llama-8b", "tp2 llama-8b batch 1 ctx 256"]
    assert not report.failed, report.rows
    assert report.rows[1]["ms"] > 0
