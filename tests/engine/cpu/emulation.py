"""The layout and arithmetic of AVX-512's bfloat16 products, and of AMX's, compiled for a machine
without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cpu import library as compiling
from engine.cpu.library import Library, LibraryUnavailableError, VectorLevel

FOLDER = Path(__file__).resolve().parents[3] / "build" / "emulated"


def _emulated(name: str, emulation: str) -> VectorLevel:
    return VectorLevel(
        name,
        frozenset({"fma", "avx2"}),
        (
            *("-march=x86-64-v3", "-DLANES=16", emulation),
            *("-O1", "-Wno-psabi"),  # it need not be fast, but compile fast
        ),
    )


PAIRS = _emulated("emulated-bf16", "-DEMULATED_BF16_PRODUCTS")
TILES = _emulated("emulated-amx", "-DEMULATED_TILES")


def compiled_library(level: VectorLevel = PAIRS) -> Library:
    """Compile it unless an earlier run did (`make clean` removes it), or skip the test where there
    is no compiler."""
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / compiling.file_name(level)
        if not path.exists():
            compiling.build(level, path)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    return Library(path)
