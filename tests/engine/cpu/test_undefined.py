"""The C code has no undefined behaviour that GCC can find, in any product."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cpu.library import LibraryUnavailableError, VectorLevel, build, usable_levels
from tests.engine.cpu.emulation import TILES

try:
    MACHINE = usable_levels()[0]
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).resolve().parents[3]
# It ends the process where behaviour is undefined, so that no library of the sanitizer is needed.
CHECKS = ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


@pytest.mark.debian
@pytest.mark.integration
@pytest.mark.parametrize("level", [TILES, MACHINE], ids=lambda level: level.name)
def test_no_product_is_undefined(level: VectorLevel, tmp_path: Path) -> None:
    checked = level._replace(flags=(*level.flags, *CHECKS))
    try:
        build(checked, tmp_path / "forward.so")
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    subprocess.run(
        [sys.executable, "-P", "-m", "tests.engine.cpu.every_product", tmp_path / "forward.so"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
