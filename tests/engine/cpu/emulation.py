"""The layout and arithmetic of AVX-512's bfloat16 products, compiled for a machine without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cpu import library as compiling
from engine.cpu.library import Library, LibraryUnavailableError, VectorLevel

EMULATED = VectorLevel(
    "emulated-bf16",
    frozenset({"fma", "avx2"}),
    (
        *("-march=x86-64-v3", "-DLANES=16", "-DEMULATED_BF16_PRODUCTS"),
        *("-O1", "-Wno-psabi"),  # it need not be fast, but compile fast
    ),
)


def emulated_library(folder: Path) -> Library:
    """Compile it, or skip the test where there is no compiler."""
    path = folder / "forward.so"
    try:
        compiling.build(EMULATED, path)
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    return Library(path)
