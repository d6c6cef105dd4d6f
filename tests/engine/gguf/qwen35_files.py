"""How llama.cpp's converter writes Qwen3-Next and Qwen3.5: keys, and values of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

JOINT_QKVZ = "joint_qkvz"
"""A field of config.json for these writers only: in_proj_qkvz is one tensor, as older converters
wrote it."""
FUSES_EXPERTS = "fuses_experts"
"""In config.json, for these writers alone: experts' gate and up are one tensor."""

_PREDICTOR = {
    "fc": "nextn.eh_proj",
    "norm": "nextn.shared_head_norm",
    "pre_fc_norm_embedding": "nextn.enorm",
    "layers.0.self_attn.q_proj": "attn_q",
}


def add_qwen35(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    value_heads = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * value_heads)
    writer.add_full_attention_interval(1 + config["layer_types"].index("full_attention"))
    turning = int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"])
    writer.add_rope_dimension_count(turning)
    # Of time, height and width, interleaved; for text all three are the token's position.
    pairs = turning // 2
    writer.add_rope_dimension_sections([*((pairs + 2 - axis) // 3 for axis in range(3)), 0])
    if (shared := config.get("shared_expert_intermediate_size")) is not None:
        writer.add_expert_shared_feed_forward_length(shared)
    if (predicting := config.get("mtp_num_hidden_layers", 0)) > 0:
        writer.add_block_count(config["num_hidden_layers"] + predicting)
        writer.add_nextn_predict_layers(predicting)


def qwen3_next_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """Queries, keys and values of all heads follow each other; gates have their own tensor."""
    heads, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    of_values = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    found = {}
    for name, values in tensors.items():
        if ".in_proj_qkvz." not in name:
            found[name] = _changed(name, values)
            continue
        by_head = values.view(heads, -1, values.shape[1])
        kinds = torch.split(by_head, [size, size, of_values, of_values], 1)
        layer = name.split(".")[2]
        if config.get(JOINT_QKVZ):
            found[f"blk.{layer}.ssm_in.weight"] = values
            continue
        *qkv, gates = [each.reshape(-1, values.shape[1]) for each in kinds]
        found[f"blk.{layer}.attn_qkv.weight"] = torch.cat(qkv)
        found[f"blk.{layer}.attn_gate.weight"] = gates
    return found


def change_config(directory: Path, **fields: object) -> None:
    config = directory / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))


def add_predictor(directory: Path) -> None:
    """Give a checkpoint a layer that predicts a further token: some of its tensors."""
    change_config(directory, mtp_num_hidden_layers=1)
    path = directory / "model.safetensors"
    tensors = load_file(path)
    sizes = {"fc": (64, 128), "layers.0.self_attn.q_proj": (128, 64)}
    extra = {f"mtp.{name}.weight": torch.randn(sizes.get(name, (64,))) for name in _PREDICTOR}
    save_file(tensors | extra, path, {"format": "pt"})


def predictor_name(name: str, layers: int) -> str:
    module = name.removeprefix("mtp.").removesuffix(".weight")
    return f"blk.{layers}.{_PREDICTOR[module]}.weight"


def fused_experts(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join gate and up, each [experts, out, in]."""
    found = {}
    for name, values in stacked.items():
        if ".gate_proj." in name:
            up = stacked[name.replace(".gate_proj.", ".up_proj.")]
            found[name.replace(".gate_proj.", ".gate_up_proj.")] = torch.cat([values, up], 1)
        elif ".up_proj." not in name:
            found[name] = values
    return found


def as_in_file(name: str, values: Tensor, config: dict[str, Any]) -> Tensor:
    changed = _changed(name, values)
    return _tiled(name, changed, config) if ".linear_attn." in name else changed


def _changed(name: str, values: Tensor) -> Tensor:
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        return values + 1
    if name.endswith(".shared_expert_gate.weight"):
        return values.squeeze(0)
    if name.endswith(".conv1d.weight"):
        return values.squeeze(1)
    return -values.exp() if name.endswith(".A_log") else values


def _tiled(name: str, values: Tensor, config: dict[str, Any]) -> Tensor:
    """Put the first value head of each key head before the second of each, and so on."""
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size = config["linear_value_head_dim"]
    if name.endswith(".linear_attn.norm.weight") or key_heads == value_heads:
        return values
    if name.endswith("out_proj.weight"):
        return _tiled_rows(values.t(), key_heads, size).t().contiguous()
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        first = 2 * key_heads * config["linear_key_head_dim"]
        values = values.clone()
        values[first:] = _tiled_rows(values[first:], key_heads, size)
        return values
    return _tiled_rows(values, key_heads, size if name.endswith("in_proj_z.weight") else 1)


def _tiled_rows(values: Tensor, key_heads: int, size: int) -> Tensor:
    heads = values.reshape(key_heads, -1, size, *values.shape[1:])
    return heads.transpose(0, 1).reshape(values.shape)
