"""``python -m bench.gpu --dry`` runs each row, through the interpreter, and ends on one page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu import engine, kernels, over_http, ranks
from bench.gpu.checks import all_checks
from bench.gpu.page import GOALS

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
# What only a GPU shows.
NOT_DRY = ("idle between steps", "8B over HTTP")


def run(output: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", "--dry", f"--output={output}", *options],
        cwd=ROOT,
        env=os.environ | {"TRITON_CACHE_DIR": str(output.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def test_chosen_rows_run_and_the_page_shows_them(tmp_path: Path) -> None:
    result = run(
        tmp_path / "gpu.json",
        *("--only", "burst llama-8b c4", "kernel decode batch 1 ", "product qwen3-0.6b qkv"),
    )
    names = [row["row"] for row in result["rows"]]
    for name in ("compile ahead", "load llama-8b", "burst llama-8b c4", "product qwen3-0.6b qkv"):
        assert name in names
    [compiled] = [row for row in result["rows"] if row["row"] == "compile ahead"]
    assert (compiled["failed"], compiled["late"]) == ({}, [])
    page = (tmp_path / "gpu.md").read_text()
    assert "| 8B, 4 streams, a token |" in page
    assert "| 0.6B alone, a token | not measured | ≤ 0.90 ms | |" in page
    assert "| kernel decode batch 1 ctx 8192 32/8x128 |" in page
    assert "| qwen3-0.6b qkv |" in page
    assert (tmp_path / "triton-cache.tar.xz").is_file()


# Python puts None into ``sys.modules`` for what cannot be imported.
IMPORTS = """
import sys
sys.modules.update(dict.fromkeys(
    "structlog litestar granian sqlalchemy opentelemetry prometheus_client httpx jinja2 llguidance "
    "tokenizers transformers hypothesis pytest".split()
))
import bench.gpu.__main__, bench.gpu.compile_ahead, bench.gpu.engine, bench.gpu.parts
import bench.gpu.device, bench.gpu.tune, bench.gpu.ranks, bench.gpu.over_http
"""


def test_it_needs_neither_the_server_s_packages_nor_the_tests() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_row_runs_to_its_end(tmp_path: Path) -> None:
    result = run(tmp_path / "gpu.json", "--seconds=1700")
    rows = {row["row"]: row for row in result["rows"]}
    assert [name for name, row in rows.items() if {"error", "left_out"} & row.keys()] == []
    expected = [name for name, _ in all_checks(torch.device("cpu"), large=False)]
    for loaded in (*engine.MAIN, *engine.VARIANTS):
        expected += [name for name, _, _ in loaded.rows]
    expected += [f"kernel decode {contexts}" for contexts in kernels.DECODE]
    expected += [kernels.BEHIND_ROW]
    expected += [*ranks.rows(2), *ranks.rows(2, " by NCCL alone"), over_http.ROW]
    assert set(expected) <= rows.keys()
    missing = [goal.what for goal in GOALS if goal.measured(rows) is None]
    assert all(what.startswith(NOT_DRY) for what in missing)
