"""Compiling ahead reports what fails, and its results travel from one run to the next."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.compile_ahead import compile_all, jobs, pack, unpack
from bench.gpu.timing import Ceilings, Machine

DRY = Machine(torch.device("cpu"), Ceilings(1e12, 1e15), dry=True)


def test_a_job_that_fails_is_named_and_the_others_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A spawned process runs its parent's main module again. A test of a Streamlit page may have
    # left its script in that place, which ends the process.
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    row = compile_all(DRY, ["norm 1", "no such job"])
    assert row["failed"] == {"no such job": "KeyError: 'no such job'"}
    assert row["late"] == []
    assert row["longest_s"]["norm 1"] > 0


@pytest.mark.parametrize(
    "name",
    [
        *("decode batch 2 ctx 256 32/8x128", "ragged behind batch 1 ctx 30064 32/8x128"),
        "sampling top_p",
        pytest.param("engine qwen3-0.6b", marks=pytest.mark.slow),  # a whole engine
    ],
)
def test_jobs_run(name: str) -> None:
    jobs(DRY)[name](machine=DRY)  # type: ignore[call-arg]


def test_the_cache_travels(tmp_path: Path) -> None:
    compiled = tmp_path / "cache"
    (compiled / "AB").mkdir(parents=True)
    (compiled / "AB" / "kernel.cubin").write_bytes(b"\x7fELF")
    archive = tmp_path / "out" / "cache.tar.xz"
    pack(compiled, archive)
    unpack(archive, tmp_path / "again")
    assert (tmp_path / "again" / "AB" / "kernel.cubin").read_bytes() == b"\x7fELF"
    unpack(tmp_path / "none", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
