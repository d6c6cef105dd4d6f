"""How llama.cpp's converter writes each family's tensors: names, shapes and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import gguf
import torch
from gguf.tensor_mapping import get_tensor_name_map
from torch import Tensor

from engine.architecture.rotary import pair_order
from engine.gguf.names import ROPE_FACTORS
from tests.engine.gguf.deepseek_files import deepseek_tensors
from tests.engine.gguf.file_names import (
    ARCHITECTURES,
    architecture_of,
    count_layers,
    stored_name,
)
from tests.engine.gguf.gemma3n_files import gemma3n_tensors
from tests.engine.gguf.hybrid_files import (
    falcon_h1_tensors,
    granite_tensors,
    lfm2_tensors,
    nemotron_h_tensors,
)
from tests.engine.gguf.kimi_linear_files import kimi_linear_tensors
from tests.engine.gguf.mixture_files import apertus_tensors, bailing_tensors, llama3_factors
from tests.engine.gguf.qwen35_files import (
    FUSES_EXPERTS,
    as_in_file,
    fused_experts,
    predictor_name,
    qwen3_next_tensors,
)

_OFFSET_NORMS = {"gemma", "gemma2", "gemma3"}
_PERMUTED = {"llama", "mistral3", "internlm2", "granite", "granitemoe", "granitehybrid", "smollm3"}
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.(.*)")


def file_tensors(
    tensors: dict[str, Tensor], config: dict[str, Any]
) -> Iterator[tuple[str, str, Tensor]]:
    """Yield a checkpoint's tensors by their names there, and by those in the file, as they are
    there in float32."""
    architecture = architecture_of(config)
    numbers = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(numbers[architecture], count_layers(config))
    stacks: dict[str, dict[int, Tensor]] = {}
    if (change := _CHANGES.get(architecture)) is not None:
        tensors = change(tensors, config)
    for name, tensor in tensors.items():
        values = tensor.float()
        if name.startswith("mtp."):
            yield name, predictor_name(name, config["num_hidden_layers"]), values
            continue
        if match := _EXPERT.fullmatch(name):
            prefix, number, rest = match.groups()
            stacks.setdefault(prefix + rest, {})[int(number)] = values
            continue
        if architecture in _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            heads = values.view(-1, config["head_dim"], *values.shape[1:])
            values = heads[:, pair_order(config["head_dim"])].reshape(values.shape)
        if architecture.startswith("qwen35"):
            values = as_in_file(name, values, config)
        if architecture in _OFFSET_NORMS and name.endswith("norm.weight"):
            values = values + 1
        if values.dim() == 3 and not name.endswith(".weight"):  # Gemma 4's experts
            name += ".weight"
        yield name, stored_name(names, name), values
    stacked = {
        name: torch.stack([experts[i] for i in range(len(experts))])
        for name, experts in stacks.items()
    }
    if config.get(FUSES_EXPERTS):
        stacked = fused_experts(stacked)
    for name, values in stacked.items():
        yield name, stored_name(names, name), values
    yield from _rope_factors(config)


def _rope_factors(config: dict[str, Any]) -> Iterator[tuple[str, str, Tensor]]:
    rope = config.get("rope_parameters") or {}
    if ARCHITECTURES[config["architectures"][0]] == "gemma4":
        pairs = config["global_head_dim"] // 2
        turning = int(pairs * rope["full_attention"]["partial_rotary_factor"])
        values = [1.0] * turning + [1e30] * (pairs - turning)
        yield ROPE_FACTORS, ROPE_FACTORS, torch.tensor(values)
    if rope.get("rope_type") == "llama3":
        yield ROPE_FACTORS, ROPE_FACTORS, llama3_factors(rope, config["head_dim"])
    for kind in ("long", "short"):
        if (factors := rope.get(f"{kind}_factor")) is not None:
            stored = f"rope_factors_{kind}.weight"
            yield stored, stored, torch.tensor(factors, dtype=torch.float32)


def _gpt2_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    endings = (".c_attn.weight", ".c_fc.weight", ".c_proj.weight")
    return {
        name: values.t().contiguous() if name.endswith(endings) else values
        for name, values in tensors.items()
    }


def _divided_experts(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """gpt-oss has the outputs of gate and up in turn, and experts' matrices transposed."""
    found = {}
    for name, tensor in tensors.items():
        if ".mlp.experts." not in name:
            found[name] = tensor
            continue
        ending = "bias" if name.endswith("_bias") else "weight"
        values = tensor if ending == "bias" else tensor.transpose(1, 2)
        stem = name.removesuffix("_bias")
        if stem.endswith("down_proj"):
            found[f"{stem}.{ending}"] = values
            continue
        for first, projection in enumerate(("gate", "up")):
            own = stem.replace("gate_up_proj", f"{projection}_proj")
            found[f"{own}.{ending}"] = values[:, first::2].contiguous()
    return found


_CHANGES = {
    "apertus": apertus_tensors,
    "bailingmoe2": bailing_tensors,
    "falcon-h1": falcon_h1_tensors,
    "deepseek2": deepseek_tensors,
    "gemma3n": gemma3n_tensors,
    "gpt-oss": _divided_experts,
    "gpt2": _gpt2_tensors,
    "granitehybrid": granite_tensors,
    "granitemoe": granite_tensors,
    "kimi-linear": kimi_linear_tensors,
    "lfm2": lfm2_tensors,
    "lfm2moe": lfm2_tensors,
    "nemotron_h": nemotron_h_tensors,
    "nemotron_h_moe": nemotron_h_tensors,
    "qwen3next": qwen3_next_tensors,
}
