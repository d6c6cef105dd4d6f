"""Every type is dequantized to the same bits as by the format's own Python library."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from engine.gguf.blocks import DECODERS, DecodedBlocks
from engine.gguf.types import TYPES, TensorType
from engine.gguf.weights import grouped_weight

NUM_SHAPES = 200


def type_named(name: str) -> TensorType:
    return next(kind for kind in TYPES.values() if kind.name == name)


def dequantised(decoded: DecodedBlocks, columns: int) -> np.ndarray:
    """Through the canonical form."""
    return grouped_weight(decoded, columns).dequantised().numpy()


def test_the_sizes_of_all_types_are_those_of_the_library() -> None:
    sizes = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: tuple(kind) for number, kind in TYPES.items()} == sizes


@pytest.mark.parametrize("name", DECODERS)
def test_random_bytes_have_the_same_bits_as_in_the_library(name: str) -> None:
    kind = type_named(name)
    random = np.random.default_rng(sorted(DECODERS).index(name))
    numbers = 0
    with np.errstate(all="ignore"):  # random bytes are NaN and infinity, too
        for _ in range(NUM_SHAPES):
            rows, blocks = random.integers(1, 9), random.integers(1, 5)
            raw = random.integers(0, 256, (rows * blocks, kind.num_bytes), dtype=np.uint8)
            found = dequantised(DECODERS[name](raw), blocks * kind.block)
            expected = gguf.dequantize(
                raw.reshape(rows, -1), getattr(gguf.GGMLQuantizationType, name)
            )
            assert found.shape == expected.shape
            both_nan = np.isnan(found) & np.isnan(expected)
            assert ((found.view(np.uint32) == expected.view(np.uint32)) | both_nan).all()
            numbers += int((~both_nan).sum())
    assert numbers > NUM_SHAPES * kind.block  # the comparison was not of NaN alone


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_what_the_library_has_quantized_is_close_to_the_original(name: str) -> None:
    kind = type_named(name)
    values = np.random.default_rng(0).standard_normal((4, 4 * kind.block), dtype=np.float32)
    raw = gguf.quantize(values, getattr(gguf.GGMLQuantizationType, name))
    found = dequantised(DECODERS[name](raw.reshape(-1, kind.num_bytes)), values.shape[1])
    error = np.square(found - values).mean() / np.square(values).mean()
    assert error < {"Q8_0": 1e-4}.get(name, 0.02)
