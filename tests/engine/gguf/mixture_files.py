"""How llama.cpp's converter writes Apertus, Ernie 4.5, EXAONE 4, Hunyuan, Ling 2.0, MiniMax-M2 and
dots.llm1: keys, values of tensors, and the factors of rotary embeddings."""

from __future__ import annotations

import math
from typing import Any

import gguf
import torch
from torch import Tensor

from tests.engine.gguf.deepseek_files import add_mixture_with_shared


def add_ernie_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_count(config["moe_num_experts"])
    writer.add_expert_used_count(config["moe_k"])
    writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
    writer.add_leading_dense_block_count(config["moe_layer_start_index"])
    shared = config["moe_num_shared_experts"]
    writer.add_expert_shared_count(shared)
    if shared:
        size = config["intermediate_size"] // config["num_key_value_heads"]
        writer.add_expert_shared_feed_forward_length(size)


def add_exaone4(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    if config["sliding_window"] is not None:
        writer.add_sliding_window(config["sliding_window"])
        kinds = config["layer_types"]
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])


def add_hunyuan_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_used_count(config["moe_topk"])
    writer.add_expert_shared_count(1)


def add_partial_rope(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    share = config["rope_parameters"].get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(config["head_dim"] * share))


def add_minimax(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_partial_rope(writer, config)
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def add_bailing(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_partial_rope(writer, config)
    add_dots1(writer, config)
    size = config["moe_intermediate_size"] * config["n_shared_experts"]
    writer.add_expert_shared_feed_forward_length(size)
    writer.add_nextn_predict_layers(0)


def bailing_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """Queries, keys and values have one matrix."""
    found = {}
    for name, values in tensors.items():
        prefix, _, module = name.partition(".self_attn.")
        if module == "q_proj.weight":
            rows = [tensors[f"{prefix}.self_attn.{one}_proj.weight"] for one in "qkv"]
            found[f"blk.{prefix.split('.')[2]}.attn_qkv.weight"] = torch.cat(rows)
        elif module not in ("k_proj.weight", "v_proj.weight"):
            found[name] = values
    return found


def add_dots1(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_mixture_with_shared(writer, config)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])


def apertus_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """The parameters of the activations are keys."""
    return {name: each for name, each in tensors.items() if ".act_fn." not in name}


def add_apertus(writer: gguf.GGUFWriter, tensors: dict[str, Tensor], layers: int) -> None:
    for name, add in (
        ("alpha_n", writer.add_xielu_alpha_n),
        ("alpha_p", writer.add_xielu_alpha_p),
        ("beta", writer.add_xielu_beta),
        ("eps", writer.add_xielu_eps),
    ):
        prefix = "model.layers."
        add([tensors[f"{prefix}{n}.mlp.act_fn.{name}"].float().item() for n in range(layers)])


def llama3_factors(rope: dict[str, Any], head_dim: int) -> Tensor:
    """Return what each frequency is divided by."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    found = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * pair / head_dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        found.append(1 / ((1 - kept) / rope["factor"] + kept))
    return torch.tensor(found)
