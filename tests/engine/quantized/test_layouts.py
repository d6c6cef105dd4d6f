"""Every format means what its formula says, to the bit."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine.architecture.errors import WeightsError
from engine.architecture.fields import ConfigFields
from engine.architecture.quantization import quantized_format
from engine.quantized import matrices
from engine.quantized.checkpoint import named_tensors
from engine.quantized.layouts import QuantizedTensor
from engine.quantized.weights import dequantised
from engine.weights.grouped import GroupedWeight
from engine.weights.weights import opened
from tests.engine.quantized.making import FORMATS, Format, Sample, compressed

SHAPES = 200
RANDOM = np.random.default_rng(3)


def read(
    directory: Path, config: dict[str, Any], modules: dict[str, dict[str, Tensor]]
) -> dict[str, tuple[Tensor, GroupedWeight | None]]:
    """Return each module's weight in float32, and its canonical form."""
    save_file(
        {
            f"{module}.{own}": each.contiguous()
            for module, tensors in modules.items()
            for own, each in tensors.items()
        },
        directory / "model.safetensors",
    )
    quantized = quantized_format(ConfigFields("config.json", config))
    with ExitStack() as ends:
        found = named_tensors(opened(directory, ends), quantized)
        tensors = {}
        for name, each in found.items():
            assert isinstance(each, QuantizedTensor), name
            values = dequantised(each, torch.float32)
            assert values.shape == each.shape
            tensors[name.rpartition(".")[0]] = values, each.load().grouped()
    return tensors


def samples(kind: Format, group: int, count: int = SHAPES) -> list[Sample]:
    random = np.random.default_rng(group)
    outputs, inputs = kind.units
    return [
        kind.make(
            random,
            outputs * int(random.integers(1, 1 + 40 // outputs)),
            inputs * int(random.integers(1, 1 + 300 // inputs)),
            group,
            0.0,
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("group", [32, 48, 128])
@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_those_of_the_formula(
    name: str, group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_PIECE_ELEMENTS", 1000)  # so that a matrix has several pieces
    kind = FORMATS[name]
    made = samples(kind, group)
    modules = {f"m{number}": each.tensors for number, each in enumerate(made)}
    found = read(tmp_path, kind.config(group), modules)
    assert len(found) == SHAPES
    kept = 0
    for number, each in enumerate(made):
        values, grouped = found[f"m{number}"]
        assert torch.equal(values, each.weight), number
        if grouped is not None:
            kept += 1
            assert torch.equal(grouped.dequantised(), each.weight), number
    if kind.few_bits:
        assert kept == SHAPES
    else:
        # Shuffling may leave a single group as it was.
        assert kept < SHAPES / 2 if "order" in name else kept == 0


@pytest.mark.parametrize("name", ["ct_int4", "ct_int4_zeros", "ct_int8"])
def test_an_output_may_have_one_scale(name: str, tmp_path: Path) -> None:
    kind = FORMATS[name]
    made = samples(kind, 0, 20)
    modules = {f"m{number}": each.tensors for number, each in enumerate(made)}
    found = read(tmp_path, kind.config(0), modules)
    for number, each in enumerate(made):
        values, grouped = found[f"m{number}"]
        assert torch.equal(values, each.weight)
        assert grouped is not None
        assert torch.equal(grouped.dequantised(), each.weight)


def test_fp8_is_what_transformers_dequantizes(tmp_path: Path) -> None:
    """Whole blocks, which is all that its code reads."""
    random = np.random.default_rng(1)
    operation = Fp8Dequantize(None)
    for name, config in (
        ("fp8_blocks", FORMATS["fp8_blocks"].config(16)),
        ("fp8", FORMATS["fp8"].config(0)),
    ):
        modules = {}
        for number in range(SHAPES):
            outputs, inputs = (16 * int(random.integers(1, 5)) for _ in range(2))
            modules[f"m{number}"] = FORMATS[name].make(random, outputs, inputs, 16, 0.0).tensors
        found = read(tmp_path, config, modules)
        for module, tensors in modules.items():
            expected = operation._dequantize_one(
                tensors["weight"],
                tensors["weight_scale_inv"].view(-1, 1)
                if name == "fp8"
                else tensors["weight_scale_inv"],
                torch.float32,
            )
            assert torch.equal(found[module][0], expected)


def test_experts_are_what_transformers_dequantizes(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    modules, expected = {}, {}
    for number in range(SHAPES):
        experts, rows, count = (int(random.integers(1, 6)) for _ in range(3))
        blocks = torch.from_numpy(random.integers(0, 256, (experts, rows, count, 16), np.uint8))
        scales = torch.from_numpy(random.integers(1, 250, (experts, rows, count), np.uint8))
        modules[f"m{number}"] = {"down_proj_blocks": blocks, "down_proj_scales": scales}
        expected[f"m{number}"] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    found = read(tmp_path, {"quant_method": "mxfp4"}, modules)
    for module, weight in expected.items():
        assert torch.equal(found[module][0], weight)


def _sample(name: str, outputs: int = 32, inputs: int = 96, group: int = 32) -> dict[str, Tensor]:
    return FORMATS[name].make(RANDOM, outputs, inputs, group, 0.1).tensors


def _experts() -> dict[str, Tensor]:
    return {
        "up_proj_blocks": torch.zeros(2, 3, 4, 16, dtype=torch.uint8),
        "up_proj_scales": torch.zeros(2, 3, 4, dtype=torch.uint8),
    }


def _halves(*shape: int, value: float = 1.0) -> Tensor:
    return torch.full(shape, value, dtype=torch.float16)


def _octets(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape, value, dtype=torch.uint8)


def _words(*shape: int, value: int = 0) -> Tensor:
    return torch.full(shape, value, dtype=torch.int32)


ONE = torch.ones(1)
NAN, INFINITE = float("nan"), float("inf")
BIG = 1 << 60


@pytest.mark.parametrize(
    ("name", "own", "changed", "says"),
    [
        ("gptq", "scales", None, "the checkpoint has no m.scales"),
        ("gptq", "qzeros", None, "the checkpoint has no m.qzeros"),
        ("gptq", "scales", _halves(2, 32), "m.scales has the shape [2, 32] instead of [3, 32]"),
        ("gptq", "scales", _words(3, 32), "m.scales is of type I32 instead of F32 or F16 or"),
        ("gptq", "scales", _halves(3, 32, value=NAN), "m.scales has scales that are not finite"),
        ("gptq", "qweight", _octets(12, 32), "m.qweight is of type U8 instead of I32"),
        ("gptq", "qweight", _words(12), "m.qweight has the shape [12] instead of 2 dimensions"),
        ("gptq", "qzeros", _words(3, 5), "m.qzeros has the shape [3, 5] instead of [3, 4]"),
        ("gptq", "g_idx", _words(96, value=3), "m.g_idx names groups outside 0 to 2"),
        ("gptq", "g_idx", _words(96, value=-1), "m.g_idx names groups outside 0 to 2"),
        ("gptq", "g_idx", _words(95), "m.g_idx has the shape [95] instead of [96]"),
        ("gptq_act_order", "g_idx", None, "the checkpoint has no m.g_idx"),
        ("ct_int4_act_order", "weight_g_idx", None, "the checkpoint has no m.weight_g_idx"),
        ("awq", "qzeros", _words(3, 5), "m.qzeros has the shape [3, 5] instead of [3, 4]"),
        ("awq", "scales", _halves(3, 32, value=NAN), "m.scales has scales that are not finite"),
        ("fp8", "weight_scale_inv", None, "the checkpoint has no m.weight_scale"),
        ("fp8", "weight_scale_inv", _halves(value=INFINITE), "m.weight_scale_inv has scales that"),
        ("fp8_blocks", "weight_scale_inv", _halves(2, 3), "[2, 3] instead of [1, 3]"),
        ("ct_int4", "weight_shape", None, "the checkpoint has no m.weight_shape"),
        ("ct_int4", "weight_shape", torch.tensor([32, BIG]), f"m.weight_shape says [32, {BIG}]"),
        ("ct_int4", "weight_shape", torch.tensor([-1, 96]), "m.weight_shape says [-1, 96]"),
        ("ct_int4", "weight_shape", torch.tensor([32, -96]), "m.weight_shape says [32, -96]"),
        ("ct_int4", "weight_scale", _halves(32, 4), "[32, 4] instead of [32, 3]"),
        ("ct_int4_zeros", "weight_zero_point", None, "the checkpoint has no m.weight_zero_point"),
        ("ct_int4_zeros", "weight_zero_point", _words(4, 2), "[4, 2] instead of [4, 3]"),
        ("ct_int8_zeros", "weight_zero_point", _halves(32, 3), "is of type F16 instead of I8"),
        ("ct_mxfp4", "weight_scale", _octets(32, 3, value=255), "m.weight_scale has scales that"),
        ("ct_nvfp4", "weight_global_scale", torch.zeros(1), "m.weight_global_scale has scales"),
        ("ct_nvfp4", "weight_global_scale", None, "the checkpoint has no m.weight_global_scale"),
        ("mxfp4", "up_proj_scales", None, "the checkpoint has no m.up_proj_scales"),
        ("mxfp4", "up_proj_scales", _octets(2, 3, 5), "[2, 3, 5] instead of [2, 3, 4]"),
        ("mxfp4", "up_proj_blocks", _octets(2, 3, 4, 8), "has blocks of 8 bytes instead of 16"),
        ("mxfp4", "up_proj_blocks", _octets(2, 3), "the shape [2, 3] instead of 4 dimensions"),
    ],
)
def test_what_does_not_fit_is_named(
    name: str, own: str, changed: Tensor | None, says: str, tmp_path: Path
) -> None:
    tensors = _experts() if name == "mxfp4" else _sample(name)
    tensors.pop(own)
    if changed is not None:
        tensors[own] = changed
    config = {"quant_method": "mxfp4"} if name == "mxfp4" else FORMATS[name].config(32)
    with pytest.raises(WeightsError) as refused:
        read(tmp_path, config, {"m": tensors})
    assert says in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_a_matrix_without_elements_is_refused(tmp_path: Path) -> None:
    tensors = {"weight": torch.empty(1 << 50, 0).to(torch.float8_e4m3fn), "weight_scale": ONE}
    with pytest.raises(WeightsError, match=r"^m.weight has no elements: its shape is \[\d+, 0\]$"):
        read(tmp_path, {"quant_method": "fp8"}, {"m": tensors})


@pytest.mark.parametrize(("own", "value"), [("weight", 8), ("weight_zero_point", -9)])
def test_numbers_of_more_bits_than_stated_are_refused(own: str, value: int, tmp_path: Path) -> None:
    tensors = {
        "weight": torch.zeros(2, 64, dtype=torch.int8),
        "weight_scale": torch.ones(2, 2),
        "weight_zero_point": torch.zeros(2, 2, dtype=torch.int8),
    }
    tensors[own][1, 1] = value
    config = compressed("int-quantized", 4, zeros=True)(32)
    with pytest.raises(WeightsError, match=f"^m.{own} has numbers outside -8 to 7$"):
        read(tmp_path, config, {"m": tensors})
