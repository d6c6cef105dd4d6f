"""A weight made few bits is that of llama.cpp's library, and every decoder has the same ones."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.gguf.blocks import DECODERS
from engine.gguf.weights import grouped_weight
from engine.weights.blocks import BlockRows
from engine.weights.file import TensorFile
from engine.weights.grouped import GroupedWeight
from engine.weights.quantization import (
    GROUP,
    Bits,
    QuantisedWeights,
    matrix,
    quantise,
    quantise_float8,
)


class Fixed:
    """A source of one matrix."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight

    def tensor(self, name: str) -> torch.Tensor:
        return self._weight


TYPES: dict[Bits, str] = {"int8": "Q8_0", "int4": "Q4_0"}


@pytest.mark.parametrize("bits", TYPES)
@given(
    outputs=st.integers(1, 5),
    groups=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    exponent=st.integers(-10, 10),
)
def test_codes_and_scales_are_those_of_the_library(
    bits: Bits, outputs: int, groups: int, seed: int, exponent: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, groups * GROUP, generator=chance) * 2.0**exponent
    weight[0, :GROUP] = 0
    found = quantise(weight, bits)
    kind = getattr(gguf.GGMLQuantizationType, TYPES[bits])
    blocks = gguf.quantize(weight.numpy(), kind)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    expected = grouped_weight(DECODERS[TYPES[bits]](blocks.reshape(-1, size)), weight.shape[1])
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scales.values(), expected.scales.values())
    assert torch.equal(found.dequantised()[0, :GROUP], torch.zeros(GROUP))


@pytest.mark.parametrize(("bits", "steps"), [("int8", 0.51), ("int4", 1.01)])
@pytest.mark.parametrize("inputs", [1, 31, 33, 70])
def test_a_weight_is_off_by_a_share_of_a_step_at_most(
    bits: Bits, steps: float, inputs: int
) -> None:
    weight = torch.randn(40, inputs, generator=torch.Generator().manual_seed(inputs))
    found = quantise(weight, bits)
    assert found.shape == (40, inputs)
    step = found.scales.values().abs().repeat_interleave(GROUP, 1)[:, :inputs]
    # The scale is rounded to float16, which moves the largest weights by a little more.
    assert ((found.dequantised() - weight).abs() <= step * steps + weight.abs() * 2**-11).all()


@pytest.mark.parametrize("bits", TYPES)
def test_only_matrices_are_quantised_and_those_in_few_bits_stay_as_they_are(bits: Bits) -> None:
    chance = torch.Generator().manual_seed(1)
    tensors = {"matrix": torch.randn(4, 70, generator=chance), "vector": torch.randn(70)}
    small = quantise(torch.randn(3, 64, generator=chance), "int8")

    class Source:
        def tensor(self, name: str) -> torch.Tensor:
            return tensors[name]

        def grouped(self, name: str) -> GroupedWeight | None:
            return small if name == "small" else None

    source = QuantisedWeights(Source(), bits)
    assert torch.equal(source.tensor("vector"), tensors["vector"])
    assert torch.equal(source.tensor("matrix"), quantise(tensors["matrix"], bits).dequantised())
    assert not torch.equal(source.tensor("matrix"), tensors["matrix"])
    found = matrix(source, "matrix")
    assert isinstance(found, GroupedWeight)
    assert torch.equal(found.dequantised(), source.tensor("matrix"))
    assert matrix(source, "small") is small
    assert torch.equal(source.tensor("small"), small.dequantised())


def test_matrices_in_blocks_stay_there_but_for_the_exact_ones(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = TensorFile(tmp_path / "file")
    types = torch.tensor([8], dtype=torch.int32)
    blocks = BlockRows.of_file(file, torch.tensor([96]), types, 32)

    class Source:
        def tensor(self, name: str) -> torch.Tensor:
            raise AssertionError(name)

        def blocks(self, name: str) -> BlockRows | None:
            return blocks

    source = QuantisedWeights(Source(), "int8", exact={"router"})
    assert source.blocks("matrix") is blocks
    assert source.blocks("router") is None
    assert QuantisedWeights(Fixed(torch.ones(2, 32)), "int8").blocks("matrix") is None
    file.close()


@pytest.mark.parametrize(("bits", "error"), [("int8", 0.0054), ("int4", 0.0860)])
def test_the_error_of_normal_weights_is_what_the_documentation_says(
    bits: Bits, error: float
) -> None:
    weight = torch.randn(512, 1024, generator=torch.Generator().manual_seed(1)) * 0.02
    found = (quantise(weight, bits).dequantised() - weight).pow(2).mean().sqrt() / 0.02
    assert found.item() == pytest.approx(error, rel=0.02)


def test_numbers_of_e4m3_are_off_by_a_sixteenth_at_most() -> None:
    weight = torch.randn(8, 100, generator=torch.Generator().manual_seed(1)) * 0.02
    weight[3] = 0
    weight[5] = 0
    weight[5, 7] = 1e-37  # with a scale of which the inverse is infinite
    made = quantise_float8(weight)
    assert made.group == 128
    found = made.dequantised()
    assert not found[5].any()
    least_normal = made.scales.coarse * 2.0**-6
    least_normal[5] = 1
    assert bool(((found - weight).abs() <= weight.abs().maximum(least_normal) / 16).all())
    assert torch.equal(found.amax(1), quantise_float8(found).dequantised().amax(1))
    source = QuantisedWeights(Fixed(weight), "fp8", exact={"router"})
    assert source.grouped("other") is None
    assert source.float8("router") is None
    kept = source.float8("other")
    assert kept is not None
    assert torch.equal(kept.dequantised(), found)
    assert torch.equal(source.tensor("other"), found)
    assert QuantisedWeights(Fixed(weight), "int8").float8("other") is None


def test_matrices_that_must_be_exact_are_left_as_they_are() -> None:
    weight = torch.randn(4, 64)
    source = QuantisedWeights(Fixed(weight), "int8", exact={"router"})
    assert source.grouped("router") is None
    assert torch.equal(source.tensor("router"), weight)
    assert source.grouped("other") is not None
    assert not torch.equal(source.tensor("other"), weight)
