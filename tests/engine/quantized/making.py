"""Random matrices as each quantized format stores them, packed code by code, with what they mean by
the format's formula in float64."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)

Random = np.random.Generator


@dataclass(frozen=True)
class Sample:
    """``tensors``: of a module, by their own names. ``weight``: float32 [outputs, inputs]."""

    tensors: dict[str, Tensor]
    weight: Tensor


Make = Callable[[Random, int, int, int, float], Sample]


@dataclass(frozen=True)
class Format:
    """``make(random, outputs, inputs, group, size)``: ``size`` is about that of large weights; 0:
    anything that the format can say. ``config``: for so many inputs a group. ``units``: of which
    outputs and inputs are multiples. ``few_bits``: the canonical form can hold it."""

    make: Make
    config: Callable[[int], dict[str, Any]]
    units: tuple[int, int] = (1, 1)
    few_bits: bool = True


def packed(codes: np.ndarray, bits: int) -> Tensor:
    """Codes of the last dimension to int32 words, the low bits first."""
    each = 32 // bits
    missing = -codes.shape[-1] % each
    padded = np.pad(codes.astype(np.int64), [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    words = np.zeros((*codes.shape[:-1], padded.shape[-1] // each), np.int64)
    for place in range(each):
        words |= padded[..., place::each] << bits * place
    return torch.from_numpy((words & 0xFFFFFFFF).astype(np.uint32).view(np.int32).copy())


def _spread(parts: np.ndarray, rows: int, columns: int, shape: tuple[int, int]) -> np.ndarray:
    return parts.repeat(rows, 0).repeat(columns, 1)[: shape[0], : shape[1]]


def _halves(random: Random, shape: tuple[int, ...], size: float) -> np.ndarray:
    return (random.uniform(0.5, 1.0, shape) * (size or 0.1)).astype(np.float16)


def _zero_points(random: Random, bits: int, shape: tuple[int, int], size: float) -> np.ndarray:
    """Any, or such as weights of usual spread have."""
    half = 1 << bits - 1
    near = max(1, half // 4) if size else half
    return random.integers(half - near, half + near, shape)


def _product(scales: np.ndarray, codes: np.ndarray) -> Tensor:
    return torch.from_numpy(scales.astype(np.float64) * codes.astype(np.float64)).float()


# --- GPTQ and AWQ --------------------------------------------------------------------------------


def gptq(bits: int, version: int, *, ordered: bool = False, symmetric: bool = False) -> Make:
    """Version 1 stores zero points less 1, subtracted from whole words, as GPTQModel does."""

    def make(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
        groups = -(-inputs // group)
        codes = random.integers(0, 1 << bits, (outputs, inputs))
        zeros = _zero_points(random, bits, (outputs, groups), size)
        if symmetric:
            zeros[:] = 1 << bits - 1
        scales = _halves(random, (outputs, groups), size / (1 << bits - 1))
        index = np.arange(inputs) // group
        if ordered:
            random.shuffle(index)
        weight = _product(scales[:, index], codes - zeros[:, index])
        words = packed(zeros.T, bits).numpy().view(np.uint32)
        if version == 1:
            words = words - np.uint32({2: 0x55555555, 4: 0x11111111, 8: 0x01010101}[bits])
        tensors = {
            "qweight": packed(codes, bits).t().contiguous(),
            "qzeros": torch.from_numpy(words.view(np.int32)),
            "scales": torch.from_numpy(scales.T.copy()),
            "g_idx": torch.from_numpy(index.astype(np.int32)),
        }
        return Sample(tensors, weight)

    return make


def gptq_config(bits: int, **more: Any) -> Callable[[int], dict[str, Any]]:
    return lambda group: {"quant_method": "gptq", "bits": bits, "group_size": group, **more}


def awq(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
    groups = -(-inputs // group)
    codes = random.integers(0, 16, (outputs, inputs))
    zeros = _zero_points(random, 4, (outputs, groups), size)
    scales = _halves(random, (outputs, groups), size / 8)

    def words(values: np.ndarray) -> Tensor:
        """[outputs, n] to int32 [n, outputs / 8]"""
        found = np.zeros((values.shape[1], outputs // 8), np.int64)
        for place, output in enumerate(AWQ_ORDER):
            found |= values.T[:, output::8].astype(np.int64) << 4 * place
        return torch.from_numpy(found.astype(np.uint32).view(np.int32).copy())

    weight = _product(
        _spread(scales, 1, group, codes.shape), codes - _spread(zeros, 1, group, codes.shape)
    )
    tensors = {
        "qweight": words(codes),
        "qzeros": words(zeros),
        "scales": torch.from_numpy(scales.T.copy()),
    }
    return Sample(tensors, weight)


# --- fp8 -----------------------------------------------------------------------------------------


def float8(scale_name: str, shared: str, *, divides: bool = False) -> Make:
    """``shared``: by what a scale is: tensor, channel, or block (of ``group`` times ``group``).
    ``divides``: codes by scales, as in GPTQModel."""

    def make(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
        raw = random.integers(0, 256, (outputs, inputs)).astype(np.uint8)
        raw[(raw & 0x7F) == 0x7F] = 0x3C  # not NaN
        if size > 0:  # a weight of usual spread
            values = torch.from_numpy(random.standard_normal((outputs, inputs)) * 100)
            raw = values.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        rows, columns = {
            "tensor": (outputs, inputs),
            "channel": (1, inputs),
            "block": (group, group),
        }[shared]
        parts = (-(-outputs // rows), -(-inputs // columns))
        scales = random.uniform(0.5, 1.0, parts).astype(np.float32) * np.float32((size or 1) / 100)
        stored = torch.from_numpy(scales)
        if divides:
            stored = 1 / stored
            scales = np.float32(1) / stored.numpy()
        codes = torch.from_numpy(raw).view(torch.float8_e4m3fn)
        weight = _product(
            _spread(scales, rows, columns, raw.shape), codes.to(torch.float64).numpy()
        )
        return Sample(
            {"weight": codes, scale_name: stored[0, 0] if shared == "tensor" else stored}, weight
        )

    return make


def gptqmodel_fp8(method: str, **more: Any) -> dict[str, Any]:
    """All that GPTQModel writes of such weights."""
    return {
        "quant_method": "fp8",
        "bits": 8,
        "group_size": -1,
        "format": "float8_e4m3fn",
        "checkpoint_format": "float8_e4m3fn",
        "weight_scale_method": method,
        "weight_scale_semantics": "inverse",
        **more,
    }


# --- compressed-tensors --------------------------------------------------------------------------


def integers(
    bits: int, *, zeros: bool = False, is_packed: bool = True, ordered: bool = False
) -> Make:
    """``group`` 0: a scale for each output."""

    def make(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
        columns = group or inputs
        groups, half = -(-inputs // columns), 1 << bits - 1
        codes = random.integers(-half, half, (outputs, inputs))
        offsets = (_zero_points(random, bits, (outputs, groups), size) - half) * zeros
        scales = _halves(random, (outputs, groups), size / half)
        index = np.arange(inputs) // columns
        if ordered:
            random.shuffle(index)
        weight = _product(scales[:, index], codes - offsets[:, index])
        tensors = {"weight_scale": torch.from_numpy(scales)}
        if is_packed:
            tensors["weight_packed"] = packed(codes + half, bits)
            tensors["weight_shape"] = torch.tensor([outputs, inputs])
            if zeros:
                along = packed((offsets + half).T, bits).t().contiguous()
                tensors["weight_zero_point"] = along
        else:
            tensors["weight"] = torch.from_numpy(codes.astype(np.int8))
            if zeros:
                tensors["weight_zero_point"] = torch.from_numpy(offsets.astype(np.int8))
        if ordered:
            tensors["weight_g_idx"] = torch.from_numpy(index.astype(np.int32))
        return Sample(tensors, weight)

    return make


def compressed(
    kind: str, bits: int, *, number: str = "int", zeros: bool = False, **more: Any
) -> Callable[[int], dict[str, Any]]:
    def config(group: int) -> dict[str, Any]:
        weights = {"num_bits": bits, "type": number, "symmetric": not zeros}
        weights |= {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
        scheme = {"targets": ["Linear"], "weights": weights | more}
        return {
            "quant_method": "compressed-tensors",
            "format": kind,
            "config_groups": {"group_0": scheme},
            "ignore": ["lm_head"],
        }

    return config


def _octets(codes: np.ndarray) -> Tensor:
    """Nibbles [..., n] to uint8 [..., n / 2], the low one first."""
    return torch.from_numpy((codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8))


def mxfp4(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
    codes = random.integers(0, 16, (outputs, inputs))
    exponents = random.integers(1, 250, (outputs, inputs // 32))
    if size > 0:
        exponents = random.integers(122, 125, (outputs, inputs // 32))
    scales = 2.0 ** (exponents.astype(np.float64) - 127)
    weight = _product(_spread(scales, 1, 32, codes.shape), np.array(E2M1)[codes])
    stored = torch.from_numpy(exponents.astype(np.uint8))
    return Sample({"weight_packed": _octets(codes), "weight_scale": stored}, weight)


def nvfp4(codes_name: str, whole_name: str, *, divides: bool) -> Make:
    def make(random: Random, outputs: int, inputs: int, group: int, size: float) -> Sample:
        codes = random.integers(0, 16, (outputs, inputs))
        stored = torch.from_numpy(random.uniform(1, 448, (outputs, inputs // 16)))
        stored = stored.to(torch.float8_e4m3fn)
        whole = np.float32(random.uniform(0.5, 1.0) * (size or 1) / 1000)
        whole = 1 / whole if divides else whole
        numbers = stored.float().numpy()
        scales = numbers / whole if divides else numbers * whole
        weight = _product(_spread(scales, 1, 16, codes.shape), np.array(E2M1)[codes])
        tensors = {
            codes_name: _octets(codes),
            "weight_scale": stored,
            whole_name: torch.tensor([whole]),
        }
        return Sample(tensors, weight)

    return make


def _fixed(config: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    return lambda group: config


FORMATS: dict[str, Format] = {
    "gptq": Format(gptq(4, 1), gptq_config(4), (8, 8)),
    "gptq_symmetric": Format(gptq(4, 1, symmetric=True), gptq_config(4, sym=True), (8, 8)),
    "gptq_2_bits": Format(gptq(2, 1), gptq_config(2), (16, 16)),
    "gptq_8_bits": Format(gptq(8, 1), gptq_config(8), (4, 4)),
    "gptq_act_order": Format(
        gptq(4, 1, ordered=True), gptq_config(4, desc_act=True), (8, 8), few_bits=False
    ),
    "gptq_v2": Format(gptq(4, 2), gptq_config(4, checkpoint_format="gptq_v2"), (8, 8)),
    "gptq_v2_act_order": Format(
        gptq(8, 2, ordered=True),
        gptq_config(8, checkpoint_format="gptq_v2", desc_act=True),
        (4, 4),
        few_bits=False,
    ),
    "awq": Format(
        awq,
        lambda group: {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group,
            "zero_point": True,
            "version": "gemm",
        },
        (8, 1),
    ),
    "fp8": Format(
        float8("weight_scale_inv", "tensor"),
        _fixed({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}),
        few_bits=False,
    ),
    "fp8_channels": Format(
        float8("weight_scale", "channel"), _fixed({"quant_method": "fbgemm_fp8"}), few_bits=False
    ),
    "fp8_blocks": Format(
        float8("weight_scale_inv", "block"),
        lambda group: {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "weight_block_size": [group, group],
        },
        few_bits=False,
    ),
    "fp8_inverse": Format(
        float8("weight_scale_inv", "tensor", divides=True),
        lambda group: gptqmodel_fp8("tensor"),
        few_bits=False,
    ),
    "fp8_inverse_blocks": Format(
        float8("weight_scale_inv", "block", divides=True),
        lambda group: gptqmodel_fp8("block", weight_block_size=[group, group]),
        few_bits=False,
    ),
    "fp8_modelopt": Format(
        float8("weight_scale", "tensor"),
        _fixed({"quant_method": "modelopt", "quant_algo": "FP8"}),
        few_bits=False,
    ),
    "ct_int4": Format(integers(4), compressed("pack-quantized", 4)),
    "ct_int4_zeros": Format(integers(4, zeros=True), compressed("pack-quantized", 4, zeros=True)),
    "ct_int4_act_order": Format(
        integers(4, ordered=True),
        compressed("pack-quantized", 4, actorder="group"),
        few_bits=False,
    ),
    "ct_int8_packed": Format(integers(8), compressed("pack-quantized", 8)),
    "ct_int8_packed_zeros": Format(
        integers(8, zeros=True), compressed("pack-quantized", 8, zeros=True)
    ),
    "ct_int8": Format(integers(8, is_packed=False), compressed("int-quantized", 8)),
    "ct_int8_zeros": Format(
        integers(8, zeros=True, is_packed=False), compressed("int-quantized", 8, zeros=True)
    ),
    "ct_fp8": Format(
        float8("weight_scale", "channel"),
        compressed("float-quantized", 8, number="float", strategy="channel"),
        few_bits=False,
    ),
    "ct_fp8_blocks": Format(
        float8("weight_scale", "block"),
        lambda group: compressed(
            "float-quantized",
            8,
            number="float",
            strategy="block",
            block_structure=[group, group],
        )(0),
        few_bits=False,
    ),
    "ct_mxfp4": Format(
        mxfp4,
        lambda group: compressed("mxfp4-pack-quantized", 4, number="float")(32),
        (1, 32),
    ),
    "ct_nvfp4": Format(
        nvfp4("weight_packed", "weight_global_scale", divides=True),
        lambda group: compressed(
            "nvfp4-pack-quantized", 4, number="float", strategy="tensor_group"
        )(16),
        (1, 16),
    ),
    "nvfp4_modelopt": Format(
        nvfp4("weight", "weight_scale_2", divides=False),
        _fixed({"quant_method": "modelopt", "quant_algo": "NVFP4"}),
        (1, 16),
    ),
}

_LINEAR = re.compile(r"(q|k|v|o|gate|up|down)_proj\.weight$")


def quantize_directory(
    directory: Path,
    name: str,
    group: int,
    *,
    seed: int = 0,
    only: str = "",
    linear: re.Pattern[str] = _LINEAR,
) -> None:
    """Replace the weights of ``linear`` maps in ``directory`` by random ones in a format; what they
    mean is written into ``directory``/meaning.safetensors. ``only``: those whose names have it."""
    kind = FORMATS[name]
    random = np.random.default_rng(seed)
    path = directory / "model.safetensors"
    meaning = load_file(path)
    stored: dict[str, Tensor] = {}
    for key, tensor in meaning.items():
        if not linear.search(key) or only not in key:
            stored[key] = tensor
            continue
        outputs, inputs = tensor.shape
        made = kind.make(random, outputs, inputs, group, 0.4)
        meaning[key] = made.weight.to(tensor.dtype)
        module = key.removesuffix(".weight")
        stored |= {f"{module}.{own}": each.contiguous() for own, each in made.tensors.items()}
    _write(directory, stored, meaning, kind.config(group))


def quantize_experts(directory: Path, *, seed: int = 0) -> None:
    """Do the same for the experts of a gpt-oss, in its own format."""
    random = np.random.default_rng(seed)
    meaning = load_file(directory / "model.safetensors")
    stored: dict[str, Tensor] = {}
    for key, tensor in meaning.items():
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[key] = tensor
            continue
        experts, inputs, outputs = tensor.shape
        made = mxfp4(random, experts * outputs, inputs, 32, 0.4)
        blocks = made.tensors["weight_packed"].view(experts, outputs, inputs // 32, 16)
        stored[f"{key}_blocks"] = blocks
        stored[f"{key}_scales"] = made.tensors["weight_scale"].view(experts, outputs, -1)
        whole = made.weight.view(experts, outputs, inputs).transpose(1, 2)
        meaning[key] = whole.contiguous().to(tensor.dtype)
    _write(directory, stored, meaning, {"quant_method": "mxfp4", "modules_to_not_convert": []})


def _write(
    directory: Path, stored: dict[str, Tensor], meaning: dict[str, Tensor], how: dict[str, Any]
) -> None:
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    save_file(meaning, directory / "meaning.safetensors")
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = how
    (directory / "config.json").write_text(json.dumps(config))
