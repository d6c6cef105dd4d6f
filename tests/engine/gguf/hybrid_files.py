"""How llama.cpp's converter writes LFM2, Granite 4, Falcon-H1 and Nemotron-H: keys, and values of
tensors."""

from __future__ import annotations

from typing import Any

import gguf
import torch
from torch import Tensor


def add_lfm2(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    heads = config["num_key_value_heads"]
    kinds = config["layer_types"]
    writer.add_head_count_kv([heads if kind == "full_attention" else 0 for kind in kinds])
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    if (dense := config.get("num_dense_layers")) is not None:
        writer.add_leading_dense_block_count(dense)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    elif config["block_auto_adjust_ff_dim"]:
        size = int(config["block_ffn_dim_multiplier"] * int(2 * config["intermediate_size"] / 3))
        multiple = config["block_multiple_of"]
        writer.add_feed_forward_length(-(-size // multiple) * multiple)


def lfm2_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name, values in tensors.items():
        stored = name.replace(".expert_bias", ".expert_bias.bias")
        # The library knows experts by a name without this.
        stored = stored.removeprefix("model.") if ".experts." in stored else stored
        found[stored] = values.squeeze(1) if name.endswith(".conv.conv.weight") else values
    return found


def add_granite_moe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_granite(writer, config)
    if shared := config.get("shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(shared)


def add_granite(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])


def add_granite_hybrid(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    add_granite_moe(writer, config)
    heads = config["num_key_value_heads"]
    attends = [kind in ("attention", "full_attention") for kind in config["layer_types"]]
    writer.add_head_count_kv([heads if each else 0 for each in attends])
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    writer.add_rope_scaling_finetuned(False)


def granite_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """Gate and up get a tensor each. A dense model's feed-forward is stored in transformers as
    ``shared_mlp``."""
    experts = config["num_local_experts"]
    ending = "_shexp" if experts else ""
    found = {}
    for name, values in tensors.items():
        layer = ".".join(name.split(".")[:3]).replace("model.layers", "blk")
        if name.endswith(".block_sparse_moe.input_linear.weight"):
            gate, up = values.chunk(2, 1)
            found[f"{layer}.ffn_gate_exps.weight"] = gate
            found[f"{layer}.ffn_up_exps.weight"] = up
        elif name.endswith(".shared_mlp.input_linear.weight"):
            gate, up = values.chunk(2)
            found[f"{layer}.ffn_gate{ending}.weight"] = gate
            found[f"{layer}.ffn_up{ending}.weight"] = up
        elif name.endswith(".shared_mlp.output_linear.weight"):
            found[f"{layer}.ffn_down{ending}.weight"] = values
        else:
            found[name] = _as_mamba2(name, values, config)
    return found


def add_falcon_h1(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_d_ssm"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])


def falcon_h1_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    return {
        name: _as_mamba2(name, values * _multiplier(name, config), config)
        for name, values in tensors.items()
    }


def _multiplier(name: str, config: dict[str, Any]) -> Tensor | float:
    """Return what a matrix of Falcon-H1 is multiplied by."""
    of_gate, of_down = config["mlp_multipliers"]
    of_input = config["attention_in_multiplier"]
    states = config["mamba_n_groups"] * config["mamba_d_state"]
    inner, heads = config["mamba_d_ssm"], config["mamba_n_heads"]
    rows = torch.tensor([inner, inner, states, states, heads])
    parts = torch.tensor(config["ssm_multipliers"]).repeat_interleave(rows)
    multipliers: dict[str, Tensor | float] = {
        "embed_tokens": config["embedding_multiplier"],
        "lm_head": config["lm_head_multiplier"],
        "gate_proj": of_gate,
        "down_proj": of_down,
        "q_proj": of_input,
        "k_proj": of_input * config["key_multiplier"],
        "v_proj": of_input,
        "o_proj": config["attention_out_multiplier"],
        "out_proj": config["ssm_out_multiplier"],
        "in_proj": config["ssm_in_multiplier"] * parts.unsqueeze(1),
    }
    return multipliers.get(name.split(".")[-2], 1.0)


def add_nemotron_h(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    kinds = config["layers_block_type"]
    heads = config["num_key_value_heads"]
    is_moe = "moe" in kinds
    size = config["moe_intermediate_size" if is_moe else "intermediate_size"]
    writer.add_head_count_kv([heads if kind == "full_attention" else 0 for kind in kinds])
    writer.add_feed_forward_length([size if kind in ("mlp", "moe") else 0 for kind in kinds])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])
    writer.add_rope_scaling_finetuned(False)
    # Written as if heads had this size, though there are no rotary embeddings.
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])  # besides that of RMS norms
    if is_moe:
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        shared = config["moe_shared_expert_intermediate_size"]
        writer.add_expert_shared_feed_forward_length(shared)
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_group_count(config["n_group"])
        if (latent := config["moe_latent_size"]) is not None:
            writer.add_moe_latent_size(latent)


def nemotron_h_tensors(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name, values in tensors.items():
        if ".experts." in name:  # the library knows them by this name
            name = name.replace("backbone.", "model.").replace(".mixer.", ".mlp.")
        found[name] = _as_mamba2(name, values, config)
    return found


def _as_mamba2(name: str, values: Tensor, config: dict[str, Any]) -> Tensor:
    if name.endswith(".conv1d.weight"):
        return values.squeeze(1)
    if name.endswith(".A_log"):
        return -values.exp().unsqueeze(1)
    if name.endswith(".D"):
        return values.unsqueeze(1)
    if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        return values.view(config.get("mamba_n_groups") or config["n_groups"], -1)
    return values
