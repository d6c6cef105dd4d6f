"""What compressed-tensors writes is read as it reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.quantized.test_layouts import SHAPES, read

compressors = pytest.importorskip("compressed_tensors.compressors")
quantization = pytest.importorskip("compressed_tensors.quantization")
helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
forward = pytest.importorskip("compressed_tensors.quantization.lifecycle.forward")

INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
CHANNEL4 = INT4 | {"strategy": "channel", "group_size": None}
INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
ASYMMETRIC = {"symmetric": False}
# Inputs are multiples of the groups, or of the other number.
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "int4": ("pack-quantized", INT4, 32),
    "int4_128": ("pack-quantized", INT4 | {"group_size": 128}, 128),
    "int4_zeros": ("pack-quantized", INT4 | ASYMMETRIC, 32),
    "int4_channel_zeros": ("pack-quantized", CHANNEL4 | ASYMMETRIC, 1),
    "int4_channel": ("pack-quantized", CHANNEL4, 1),
    "int8_packed": ("pack-quantized", INT8, 1),
    "int8_packed_zeros": ("pack-quantized", INT8 | ASYMMETRIC, 1),
    "int8": ("int-quantized", INT8, 1),
    "int8_tensor": ("int-quantized", INT8 | {"strategy": "tensor"}, 1),
    "int8_zeros": ("int-quantized", INT8 | ASYMMETRIC, 1),
    "fp8": ("float-quantized", FLOAT8, 1),
    "fp8_tensor": ("float-quantized", FLOAT8 | {"strategy": "tensor"}, 1),
    "fp8_blocks": (
        "float-quantized",
        FLOAT8 | {"strategy": "block", "block_structure": [16, 16]},
        16,
    ),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        16,
    ),
    "mxfp4": (
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
        32,
    ),
    "mxfp8": (
        "mxfp8-quantized",
        {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32},
        32,
    ),
}


def module(
    form: str, args: Any, outputs: int, inputs: int, random: np.random.Generator
) -> dict[str, Tensor]:
    """A random weight with scales and zero points, of which the library makes a module."""
    weight = torch.from_numpy(random.standard_normal((outputs, inputs))).float()
    strategy = args.strategy
    shape = {
        "tensor": (1,),
        "channel": (outputs, 1),
        "block": (-(-outputs // 16), -(-inputs // 16)),
    }.get(strategy, (outputs, inputs // (args.group_size or inputs)))
    most = {4: 8.0 if args.type == "int" else 6.0, 8: 128.0 if args.type == "int" else 448.0}
    scales = torch.from_numpy(random.uniform(1.0, 3.0, shape)).float() / most[args.num_bits]
    tensors = {"weight": weight, "weight_scale": scales}
    if form.startswith("mx"):
        tensors["weight_scale"] = torch.exp2(torch.log2(scales).floor())
    if form.startswith("nvfp4"):
        whole = torch.from_numpy(random.uniform(100, 1000, 1)).float()
        tensors["weight_scale"] = (scales * whole).to(torch.float8_e4m3fn).float()
        tensors["weight_global_scale"] = whole
    if not args.symmetric:
        half = 1 << args.num_bits - 1
        zeros = random.integers(-half, half, shape)
        tensors["weight_zero_point"] = torch.from_numpy(zeros).to(torch.int8)
    return tensors


def whole_precision(stored: dict[str, Tensor], args: Any) -> Tensor:
    """What the library computes, in float32: by itself it rounds to bfloat16."""
    outputs, octets = stored["weight_packed"].shape
    codes = helpers.unpack_fp4_from_uint8(
        stored["weight_packed"], outputs, 2 * octets, dtype=torch.float32
    )
    found: Tensor = forward.dequantize(
        codes,
        stored["weight_scale"].float(),
        args=args,
        global_scale=stored["weight_global_scale"],
        dtype=torch.float32,
    )
    return found


@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_the_library(case: str, tmp_path: Path) -> None:
    form, settings, unit = CASES[case]
    args = quantization.QuantizationArgs(**settings)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args)
    compressor = compressors.BaseCompressor.get_value_from_registry(form)
    random = np.random.default_rng(0)
    modules, expected = {}, {}
    for number in range(SHAPES):
        # The library itself cannot read zero points of up to eight outputs.
        outputs = int(random.integers(9, 50)) * (unit if "blocks" in case else 1)
        inputs = unit * int(random.integers(1, 1 + 300 // unit))
        made = module(form, args, outputs, inputs, random)
        stored = compressor.compress(made, scheme)
        modules[f"m{number}"] = stored
        expected[f"m{number}"] = (
            whole_precision(stored, args)
            if form.startswith("nvfp4")
            else compressor.decompress(stored, scheme)["weight"].float()
        )
    config = {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    }
    found = read(tmp_path, config, modules)
    assert len(found) == SHAPES
    for name, weight in expected.items():
        values, grouped = found[name]
        assert torch.equal(values, weight), name
        if grouped is not None:
            assert torch.equal(grouped.dequantised(), weight), name
    kept = [grouped for _, grouped in found.values() if grouped is not None]
    # Zero points of 8 bits need minimums, which scales of all float32's digits would round.
    is_few = "fp8" not in form and case not in ("int8_packed_zeros", "int8_zeros", "fp8_blocks")
    assert (len(kept) == SHAPES) == (is_few and not form.startswith(("float", "mxfp8")))
