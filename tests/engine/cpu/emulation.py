"""The layout and arithmetic of AVX-512's bfloat16 products, compiled for a machine without them."""

from __future__ import annotations

from engine.cpu.library import VectorLevel

EMULATED = VectorLevel(
    "emulated-bf16",
    frozenset({"fma", "avx2"}),
    (
        *("-march=x86-64-v3", "-DLANES=16", "-DEMULATED_BF16_PRODUCTS"),
        *("-O1", "-Wno-psabi"),  # it need not be fast, but compile fast
    ),
)
