"""How the GGUF files of an architecture differ from Llama's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.gguf.settings import FamilyReader, ParameterReader, no_parameters, nothing

# End a turn in chat templates, and so an answer, even if a file's keys do not name them.
TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>"})


@dataclass(frozen=True, slots=True)
class GgufFamily:
    architecture: str
    """As in config.json."""
    permuted: bool = False
    """Rows of query and key are in the order in which pairs to rotate are adjacent, instead of half
    a head apart."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """What a layer's modules are called, where that is not as in Llama's files."""
    transposed: frozenset[str] = frozenset()
    """The modules among them whose matrices are [inputs, outputs] in checkpoints, and the transpose
    in files."""
    vectors: frozenset[str] = frozenset()
    """Tensors that belong to the configuration."""
    settings: FamilyReader = nothing
    """Returns the fields of config.json that not all families have."""
    parameters: ParameterReader = no_parameters
    """Returns the parameters of one element that are keys of the file, not tensors."""
    end_tokens: frozenset[str] = TURN_ENDS
    """Texts of the tokens after which an answer ends, besides those that keys name."""
    has_rope: bool = True
    """False: no layer has rotary embeddings, whatever the keys say of them."""
    has_partial_rope: bool = False
    """Rotary embeddings may cover only a part of each head."""
    is_wide: bool = False
    """Our own code needs bfloat16: activations exceed float16's range."""
    has_experts: bool = False
    """Mixtures of experts are supported."""
    layers_differ: bool = False
    """Sizes may differ by layer."""
    has_layers_without_kv: bool = False
    """Some layers (convolutions, Mamba) have 0 in attention.head_count_kv."""
    has_layers_without_feed_forward: bool = False
    """Some layers have 0 in feed_forward_length."""
    norm_key: str = "attention.layer_norm_rms_epsilon"
    """The key of the epsilon of the norms."""
    has_mla: bool = False
    """Multi-head latent attention: head_dim is the rotary part of a head, and every head has keys
    and values."""
    has_rope_factors: bool = False
    """Rotary embeddings may be scaled as Llama 3's, though transformers' code computes."""
    by_transformers: bool = False
    """Computed by transformers' code, not by ours."""
    variants: Mapping[str, GgufFamily] = field(default_factory=dict)
    """The family to use instead, by the key that selects it when set and not 0."""
    by_tensors: Mapping[str, GgufFamily] = field(default_factory=dict)
    """The family to use instead, by the tensor that selects it when present."""


def projections(module: str, ending: str) -> dict[str, str]:
    """Return the names of those of a feed-forward network that has a gate."""
    return {f"{module}.{one}_proj": f"ffn_{one}_{ending}" for one in ("gate", "up", "down")}


FUSED_ATTENTION = dict.fromkeys((f"self_attn.{one}_proj" for one in "qkv"), "attn_qkv")
GATE_UP = dict.fromkeys(("mlp.experts.gate_proj", "mlp.experts.up_proj"), "ffn_gate_up_exps")
GATED_SHARED_EXPERT = {
    **projections("mlp.shared_expert", "shexp"),
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
GRANITE_EXPERTS = {
    "block_sparse_moe.router": "ffn_gate_inp",
    **projections("block_sparse_moe.experts", "exps"),
    "shared_mlp.gate_proj": "ffn_gate_shexp",
    "shared_mlp.up_proj": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
SHARED_EXPERTS = projections("mlp.shared_experts", "shexp")
LATENT_ATTENTION = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.k_b_proj": "attn_k_b",
    "self_attn.v_b_proj": "attn_v_b",
}
