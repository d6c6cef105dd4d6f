"""How llama.cpp's converter writes Gemma 3n: keys, and values of tensors."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import gguf
import torch
from torch import Tensor


def add_gemma3n(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    quantile = NormalDist().inv_cdf
    writer.add_activation_sparsity_scale(
        [quantile(s) if s else -float("inf") for s in config["activation_sparsity_pattern"]]
    )


def gemma3n_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """The projections of AltUp are in one tensor."""
    found = {}
    for name, values in tensors.items():
        if not name.startswith("model.altup_"):
            found[f"{name}.weight" if name.endswith("_scale") else name] = values
    for module in ("altup_projections", "altup_unembed_projections"):
        each = [
            tensors[f"model.{module}.{number}.weight"]
            for number in range(config["altup_num_inputs"] - 1)
        ]
        found[f"model.{module}.weight"] = torch.stack(each)
    return found | _sharing_tensors(config)


def _sharing_tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    """What published checkpoints have for layers that use keys and values of others."""
    rows = config["num_key_value_heads"] * config["head_dim"]
    layers = config["num_hidden_layers"]
    found = {}
    for layer in range(layers - config["num_kv_shared_layers"], layers):
        prefix = f"model.layers.{layer}.self_attn"
        found[f"{prefix}.k_norm.weight"] = torch.ones(config["head_dim"])
        for module in ("k_proj", "v_proj"):
            found[f"{prefix}.{module}.weight"] = torch.ones(rows, config["hidden_size"])
    return found
