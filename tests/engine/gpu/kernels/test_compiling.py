"""Every kernel compiles for the GPU it was written for, and fits into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90_within_its_shared_memory(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.gpu.kernels.compiling"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kernels = {line.split()[0] for line in done.stdout.splitlines() if "registers" in line}
    assert {"_attend_split", "_attend_ragged", "_norm_rope_store", "_sample"} <= kernels
