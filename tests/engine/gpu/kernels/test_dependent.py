"""Kernels that start early wait for those before them. They are compiled, as the interpreter runs
one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from tests.engine.gpu.kernels.compiling import starts_early

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[4]


def test_every_kernel_of_a_decode_step_waits_before_it_reads_or_writes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.gpu.kernels.compiling", "early"],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines if line.endswith(" early")} == {
        *("_add_rms_norm", "_advance", "_attend_share", "_count_tiles", "_gated"),
        *("_norm_rope_store", "_skinny", "_route", "_gates_of_pair", "_downs_of_row"),
        "_few_bit_vectors",
    }


def kernel(ptx: str, *, early: bool = True, name: str = "_kernel") -> SimpleNamespace:
    return SimpleNamespace(metadata=SimpleNamespace(name=name, launch_pdl=early), asm={"ptx": ptx})


def test_one_that_does_not_wait_is_found() -> None:
    weights_first = "ld.global %r1; griddepcontrol.wait; st.global [%r1];"
    assert starts_early(kernel(weights_first, name="_add_rms_norm"))
    assert starts_early(kernel("prefetch.global.L2 [%r1]; griddepcontrol.wait; ld.global %r1;"))
    assert not starts_early(kernel("st.global [%r1];", early=False))
    for ptx in (
        "ld.global %r1; st.global [%r1];",
        weights_first,
        "st.global [%r1]; griddepcontrol.wait;",
        "cp.async.cg.shared.global [%r1]; griddepcontrol.wait;",
        "atom.global.add %r1; griddepcontrol.wait;",
    ):
        with pytest.raises(ValueError, match="_kernel does not wait"):
            starts_early(kernel(ptx))
