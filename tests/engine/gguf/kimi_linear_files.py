"""How llama.cpp's converter writes Kimi-Linear: keys, and values of tensors."""

from __future__ import annotations

import re
from typing import Any

import gguf
from torch import Tensor

from tests.engine.gguf.deepseek_files import add_latent_attention, deepseek_tensors

_DENSE = re.compile(r"\.block_sparse_moe\.(gate|up|down)_proj\.")


def add_kimi_linear(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_latent_attention(writer, config)
    kinds = config["layer_types"]
    writer.add_head_count_kv([int(kind == "full_attention") for kind in kinds])
    # Sizes of a head, in older files too, and one that is of no layer.
    writer.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_value_length(config["hidden_size"] // config["num_attention_heads"])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_kda_head_dim(config["linear_head_dim"])
    writer.add_expert_shared_count(config["num_shared_experts"])
    writer.add_leading_dense_block_count(config["mlp_layer_types"].count("dense"))
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_used_count(config["topk_group"])


def kimi_linear_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name, values in deepseek_tensors(tensors, config).items():
        if name.endswith("_conv1d.weight"):
            values = values.unsqueeze(0)
        if name.endswith(".A_log"):
            values = -values.exp()
        found[_DENSE.sub(r".mlp.\1_proj.", name)] = values
    return found
