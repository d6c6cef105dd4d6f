"""The names of tensors: those of Hugging Face's checkpoints and those of GGUF files."""

from __future__ import annotations

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
}

LINK = "model.gguf"
"""In a model directory: the link to its GGUF file."""

ROPE_FACTORS = "rope_freqs.weight"
"""What each frequency of the rotary embedding is divided by: read with the configuration."""


def gguf_name(name: str) -> str:
    """Return what a GGUF file calls the parameter ``name`` of a Llama-like decoder."""
    module, _, kind = name.rpartition(".")
    if not module.startswith(_LAYER):
        return f"{_WHOLE[module]}.{kind}"
    layer, _, module = module.removeprefix(_LAYER).partition(".")
    return f"blk.{layer}.{_OF_LAYER[module]}.{kind}"
