"""The names of tensors: those of Hugging Face's checkpoints and those of GGUF files."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = "model.layers."
_OF_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_EXPERT = re.compile(r"(mlp\.experts\.)(\d+)\.")
_NOTHING: Mapping[str, str] = {}
ROUTER = ".ffn_gate_inp."

LINK = "model.gguf"
"""In a model directory: the link to its GGUF file."""

ROPE_FACTORS = "rope_freqs.weight"
"""What each frequency of the rotary embedding is divided by: read with the configuration."""


def gguf_name(name: str, modules: Mapping[str, str] = _NOTHING) -> str:
    """Return what a GGUF file calls the tensor that is, or has, the parameter ``name`` of a
    Llama-like decoder. ``modules``: what a family calls a layer's modules that Llama's files call
    otherwise. A layer's experts are one tensor for each of their three matrices."""
    module, _, kind = name.rpartition(".")
    if not module.startswith(_LAYER):
        return f"{_WHOLE[module]}.{kind}"
    layer, _, module = module.removeprefix(_LAYER).partition(".")
    module = _EXPERT.sub(r"\1", module)
    return f"blk.{layer}.{modules.get(module) or _OF_LAYER[module]}.{kind}"


def expert_of(name: str) -> int | None:
    """Return the number of the expert that the parameter ``name`` belongs to; None: to none."""
    match = _EXPERT.search(name)
    return int(match[2]) if match else None
