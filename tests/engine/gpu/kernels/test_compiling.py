"""Every kernel compiles for the GPU it was written for, fits into it, and needs what is written
down."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import triton

from tests.engine.gpu.kernels.compiling import RESOURCES, SHARED_LIMIT, SPILL_LIMIT

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_kernel_compiles_for_sm_90_within_its_shared_memory(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.gpu.kernels.compiling"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kernels = {line.split()[0] for line in done.stdout.splitlines() if "registers" in line}
    assert {"_attend_share", "_attend_ragged", "_norm_rope_store", "_sample"} <= kernels
    written_down = RESOURCES / f"triton-{triton.__version__}.txt"
    assert done.stdout == written_down.read_text(), (
        f"python -m tests.engine.gpu.kernels.compiling > {written_down}"
    )


def launched() -> set[str]:
    """Return the names of all kernels that are launched in the engine."""
    modules = (ROOT / "engine" / "gpu" / "kernels").glob("*.py")
    launches = (re.findall(r"^ {4,}(_\w+)\[(?:grid|\()", m.read_text(), re.M) for m in modules)
    return {name for names in launches for name in names}


@pytest.mark.parametrize("version", ["3.6.0", "3.8.0"])
def test_every_kernel_is_written_down(version: str) -> None:
    """All but those of trials."""
    lines = (RESOURCES / f"triton-{version}.txt").read_text().splitlines()
    names = {line.split()[0] for line in lines if "registers" in line}
    assert launched() - {"_one", "_next_one"} == names


@pytest.mark.parametrize("version", ["3.6.0", "3.8.0"])
def test_the_kernels_of_a_decode_step_and_the_merging_of_parts_start_early(version: str) -> None:
    lines = (RESOURCES / f"triton-{version}.txt").read_text().splitlines()
    early = {line.split()[0] for line in lines if line.endswith(" early")}
    assert early == {
        *("_add_rms_norm", "_advance", "_attend_share", "_count_tiles", "_gated"),
        *("_merge_parts", "_norm_rope_store", "_skinny"),
        *("_route", "_gates_of_pair", "_downs_of_row", "_few_bit_vectors", "_few_bit_dots"),
    }


@pytest.mark.parametrize("version", ["3.6.0", "3.8.0"])
def test_decode_attention_leaves_room_for_four_programs_on_a_multiprocessor(version: str) -> None:
    """In 16 bits, by what is written down."""
    shape, variant, counted = "", 0, 0
    for line in (RESOURCES / f"triton-{version}.txt").read_text().splitlines():
        if not line.startswith(" "):
            shape, variant = line, 0
        elif "_attend_share" in line and "float32" not in shape:
            _, registers, _, spilled, *_ = line.split()
            assert int(registers) <= 128, shape
            # Plain; with a window, a cap and sinks; with these over an 8-bit cache.
            plain = 12 if "head dim 256" in shape else 0
            assert int(spilled) <= (plain, 16, SPILL_LIMIT)[variant], shape
            variant += 1
            counted += 1
    assert counted == 27


@pytest.mark.parametrize("version", ["3.6.0", "3.8.0"])
def test_heads_of_128_leave_room_for_two_prompt_programs_on_a_multiprocessor(version: str) -> None:
    """In 16 bits, by what is written down. Each shape has three pairs: of the table, uniform."""
    shape, place, counted = "", 0, 0
    for line in (RESOURCES / f"triton-{version}.txt").read_text().splitlines():
        if not line.startswith(" "):
            shape, place = line, 0
        elif "_attend_ragged" in line:
            _, registers, _, spilled, _, _, shared, *_ = line.split()
            sizes = re.search(r"head dim (\d+), .*torch\.(\w+)", shape)
            assert sizes is not None
            if place % 2 == 0 and 64 < int(sizes[1]) <= 128 and sizes[2] != "float32":
                assert int(registers) <= 128, shape
                assert int(spilled) <= (0, 24, 32)[place // 2], shape
                assert 2 * int(shared) <= SHARED_LIMIT
                counted += 1
            place += 1
    assert counted == 18
