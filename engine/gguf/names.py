"""The names of tensors: those of Hugging Face's checkpoints and those of GGUF files; and of the
link to a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

POSITIONS = "position_embd"
"""GPT-2's embeddings of positions."""

_WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.final_layernorm": "output_norm",
    "model.embedding_norm": "token_embd_norm",
    "model.embeddings": "token_embd",
    "model.norm_f": "output_norm",
    "transformer.wte": "token_embd",
    "transformer.wpe": POSITIONS,
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    "model.altup_projections": "altup_proj",
    "model.altup_unembed_projections": "altup_unembd_proj",
}
_LAYER = re.compile(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.*)")
_OF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.v_norm": "attn_v_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
# Parameters whose names do not end in .weight or .bias.
_WITHOUT_SUFFIX = {
    "layer_scalar": "layer_output_scale.weight",
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.e_score_correction_bias": "exp_probs_b.bias",
    "linear_attn.A_log": "ssm_a",
    "self_attn.forget_gate.A_log": "ssm_a",
    "self_attn.forget_gate.dt_bias": "ssm_dt.bias",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "pre_ff_layernorm.weight": "ffn_norm",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.dt_bias": "ssm_dt.bias",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.dt_bias": "ssm_dt.bias",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
}
_IN_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,8})\..*")
_STACKED = re.compile(r"(\.experts|\.altup_projections|\.altup_unembed_projections)\.(\d+)\.")
_NOTHING: Mapping[str, str] = {}
ROUTER = ".ffn_gate_inp."

LINK = "model.gguf"
"""In a model directory: the link to its GGUF file."""

ROPE_FACTORS = "rope_freqs.weight"
"""What each frequency of the rotary embedding is divided by: read with the configuration."""


def gguf_name(name: str, modules: Mapping[str, str] = _NOTHING) -> str:
    """Return the name of the GGUF tensor that holds the parameter ``name`` of a decoder. All
    experts of a layer share one tensor for each projection; so do the projections of Gemma 3n's
    AltUp. ``modules``: a family's names for a layer's modules, where they differ from Llama's."""
    match = _LAYER.fullmatch(name)
    if match is None:
        module, _, kind = _STACKED.sub(r"\1.", name).rpartition(".")
        return f"{_WHOLE[module]}.{kind}"
    layer, rest = match.groups()
    if rest in _WITHOUT_SUFFIX:
        return f"blk.{layer}.{_WITHOUT_SUFFIX[rest]}"
    module, _, kind = _STACKED.sub(r"\1.", rest).rpartition(".")
    return f"blk.{layer}.{modules.get(module) or _OF_LAYER[module]}.{kind}"


def place_in_stack(name: str) -> int | None:
    """Return which of the matrices in a tensor of three dimensions the parameter ``name`` is; None:
    it is the only one in its tensor."""
    match = _STACKED.search(name)
    return int(match[2]) if match else None


def layer_of(tensor: str) -> int | None:
    """Return the number of the layer that a file's tensor belongs to; None: to none."""
    match = _IN_LAYER.fullmatch(tensor)
    return int(match[1]) if match else None


def gguf_of(directory: Path) -> Path | None:
    """Return the path of the GGUF file, which may have gone since; None if it is no such
    directory."""
    link = directory / LINK
    if link.is_symlink():
        return link.parent / link.readlink()
    return link if link.exists() else None
