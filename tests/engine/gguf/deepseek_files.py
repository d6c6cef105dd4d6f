"""How llama.cpp's converter writes DeepSeek V2, V3 and GLM-4.7 Flash: keys, and values of
tensors."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from torch import Tensor

JOINT_KV_B = "joint_kv_b"
"""A field of config.json for these writers only: attn_kv_b is one tensor, and nothing is said of
groups of experts, as older converters did."""


def add_mixture_with_shared(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    dense = config.get("first_k_dense_replace")
    if dense is None:
        dense = config["mlp_layer_types"].count("dense")
    writer.add_leading_dense_block_count(dense)
    is_v2 = config["model_type"] == "deepseek_v2"
    router = gguf.ExpertGatingFuncType.SOFTMAX if is_v2 else gguf.ExpertGatingFuncType.SIGMOID
    writer.add_expert_gating_func(router)
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])


def add_deepseek(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_mixture_with_shared(writer, config)
    if config["n_group"] > 1 and not config.get(JOINT_KV_B):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    add_latent_attention(writer, config)
    if (scale := config["rope_parameters"].get("mscale_all_dim")) is not None:
        writer.add_rope_scaling_yarn_log_mul(0.1 * scale)


def add_latent_attention(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    rank, turning = config["kv_lora_rank"], config["qk_rope_head_dim"]
    head = config["qk_nope_head_dim"] + turning
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_rope_dimension_count(turning)
    if config.get(JOINT_KV_B):
        writer.add_key_length(head)
        writer.add_value_length(config["v_head_dim"])
    else:
        writer.add_head_count_kv(1)
        writer.add_key_length(rank + turning)
        writer.add_value_length(rank)
        writer.add_key_length_mla(head)
        writer.add_value_length_mla(config["v_head_dim"])


def deepseek_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    if config.get(JOINT_KV_B):
        return tensors
    heads, own = config["num_attention_heads"], config["qk_nope_head_dim"]
    found = {}
    for name, values in tensors.items():
        if not name.endswith(".kv_b_proj.weight"):
            found[name] = values
            continue
        by_head = values.view(heads, -1, values.shape[1])
        keys, made = torch.split(by_head, [own, config["v_head_dim"]], 1)
        found[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2).contiguous()
        found[name.replace("kv_b_proj", "v_b_proj")] = made.contiguous()
    return found
