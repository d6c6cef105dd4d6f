"""The Llama-like families: a row of ``DECODER_FAMILIES`` says how each departs from Llama."""

from __future__ import annotations

from dataclasses import dataclass

from engine.architecture.errors import UnsupportedError
from engine.architecture.features import NormPlace, QKNorm
from engine.architecture.fields import ConfigFields
from engine.architecture.layers import (
    Reader,
    read_gemma3,
    read_granite,
    read_ministral,
    read_ministral3,
    read_mistral,
    read_mixtral,
    read_olmo3,
    read_olmoe,
    read_phi3,
    read_plain,
    read_qwen,
    read_qwen3_moe,
    read_smollm3,
)

# Patterns, and what a match is replaced by.
TensorNames = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DecoderFamily:
    """What a family's config.json means where it says nothing, and what all its models have.

    ``attention_bias`` and ``mlp_bias``: whether these fields count; ``tensor_names``: what
    parameters are stored as instead of under Llama's names, several perhaps as one tensor, one
    after the other; ``fields``: which fields are known besides those of all families. A model with
    any other, unless it is null or false, is left to another implementation. None: any are let
    through.
    """

    read: Reader = read_plain
    num_kv_heads: int | None = None  # None: as many as query heads
    head_dim: int | None = None  # None: hidden size / heads
    max_position_embeddings: int = 32768
    norm_eps: float = 1e-6
    activation: str = "silu"
    activation_field: str = "hidden_act"
    is_tied: bool = False
    qkv_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: QKNorm = QKNorm.NONE
    norms: NormPlace = NormPlace.BEFORE
    offset_norms: bool = False
    tensor_names: TensorNames = ()
    fields: frozenset[str] | None = None

    def refuse_unknown(self, fields: ConfigFields) -> None:
        """Raises UnsupportedError if config.json says what this family is not known to have."""
        if self.fields is None:
            return
        unknown = [
            name
            for name, value in fields.values.items()
            if value not in (None, False) and name not in _OF_ALL | _WITHOUT_EFFECT | self.fields
        ]
        if unknown:
            raise UnsupportedError(
                f"{fields.source}: {', '.join(sorted(unknown)[:5])} is not known for this family"
            )


_OF_ALL = frozenset(
    {
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"),
        *("rms_norm_eps", "hidden_act", "tie_word_embeddings", "rope_theta", "rope_scaling"),
        *("rope_parameters", "dtype", "torch_dtype", "architectures", "eos_token_id"),
    }
)
_WITHOUT_EFFECT = frozenset(
    {
        *("model_type", "transformers_version", "auto_map", "_name_or_path", "use_cache"),
        *("initializer_range", "attention_dropout", "bos_token_id", "pad_token_id", "id2label"),
        *("label2id", "output_attentions", "output_hidden_states", "return_dict", "problem_type"),
        *("chunk_size_feed_forward", "is_decoder", "pretraining_tp", "unsloth_fixed"),
        *("_attn_implementation_autoset", "cache_implementation", "resid_pdrop", "embd_pdrop"),
        *(
            "router_aux_loss_coef",
            "router_jitter_noise",
            "output_router_logits",
            "transformers.js_config",
        ),
    }
)
_ATTENTION_BIAS = frozenset({"attention_bias"})
_BIASES = frozenset({"attention_bias", "mlp_bias"})
_EXPERTS = frozenset({"num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob"})

_FUSED = (
    (r"\.self_attn\.[qkv]_proj\.", ".self_attn.qkv_proj."),
    (r"\.mlp\.(gate|up)_proj\.", ".mlp.gate_up_proj."),
)
_MIXTRAL = (
    (r"\.mlp\.gate\.", ".block_sparse_moe.gate."),
    (r"\.mlp\.experts\.(\d+)\.gate_proj\.", r".block_sparse_moe.experts.\1.w1."),
    (r"\.mlp\.experts\.(\d+)\.up_proj\.", r".block_sparse_moe.experts.\1.w3."),
    (r"\.mlp\.experts\.(\d+)\.down_proj\.", r".block_sparse_moe.experts.\1.w2."),
)

# By ``model_type``.
DECODER_FAMILIES: dict[str, DecoderFamily] = {
    "llama": DecoderFamily(max_position_embeddings=2048, attention_bias=True, mlp_bias=True),
    "mistral": DecoderFamily(read_mistral, num_kv_heads=8, max_position_embeddings=131072),
    "qwen2": DecoderFamily(read_qwen, num_kv_heads=32, qkv_bias=True),
    "qwen3": DecoderFamily(
        read_qwen, num_kv_heads=32, head_dim=128, attention_bias=True, qk_norm=QKNorm.HEAD
    ),
    "smollm3": DecoderFamily(
        read_smollm3,
        num_kv_heads=4,
        is_tied=True,
        attention_bias=True,
        mlp_bias=True,
        fields=_BIASES
        | {"no_rope_layers", "no_rope_layer_interval", "layer_types", "max_window_layers"},
    ),
    "phi3": DecoderFamily(
        read_phi3,
        max_position_embeddings=4096,
        norm_eps=1e-5,
        tensor_names=_FUSED,
        fields=frozenset(
            {
                *("partial_rotary_factor", "original_max_position_embeddings", "sliding_window"),
                *("interpolate_factor", "full_attn_mod"),
            }
        ),
    ),
    "granite": DecoderFamily(
        read_granite,
        max_position_embeddings=2048,
        attention_bias=True,
        mlp_bias=True,
        fields=_BIASES
        | {
            *("attention_multiplier", "embedding_multiplier", "residual_multiplier"),
            "logits_scaling",
        },
    ),
    "olmo2": DecoderFamily(
        max_position_embeddings=2048,
        norm_eps=1e-5,
        attention_bias=True,
        qk_norm=QKNorm.WHOLE,
        norms=NormPlace.AFTER,
        fields=_ATTENTION_BIAS,
    ),
    "olmo3": DecoderFamily(
        read_olmo3,
        max_position_embeddings=2048,
        norm_eps=1e-5,
        attention_bias=True,
        qk_norm=QKNorm.WHOLE,
        norms=NormPlace.AFTER,
        fields=_ATTENTION_BIAS | {"layer_types", "sliding_window"},
    ),
    "gemma3_text": DecoderFamily(
        read_gemma3,
        num_kv_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
        activation="gelu_pytorch_tanh",
        activation_field="hidden_activation",
        is_tied=True,
        attention_bias=True,
        qk_norm=QKNorm.HEAD,
        norms=NormPlace.BOTH,
        offset_norms=True,
        fields=_ATTENTION_BIAS
        | {
            *("layer_types", "sliding_window", "sliding_window_pattern", "rope_local_base_freq"),
            *("query_pre_attn_scalar", "hidden_activation", "_sliding_window_pattern"),
        },
    ),
    "ministral": DecoderFamily(
        read_ministral,
        num_kv_heads=8,
        max_position_embeddings=131072,
        fields=frozenset({"layer_types", "sliding_window"}),
    ),
    "ministral3": DecoderFamily(
        read_ministral3,
        num_kv_heads=8,
        head_dim=128,
        max_position_embeddings=262144,
        norm_eps=1e-5,
        fields=frozenset({"sliding_window"}),
    ),
    "mixtral": DecoderFamily(
        read_mixtral,
        num_kv_heads=8,
        max_position_embeddings=131072,
        norm_eps=1e-5,
        tensor_names=_MIXTRAL,
        fields=_EXPERTS - {"norm_topk_prob"} | {"sliding_window"},
    ),
    "olmoe": DecoderFamily(
        read_olmoe,
        max_position_embeddings=4096,
        norm_eps=1e-5,
        attention_bias=True,
        qk_norm=QKNorm.WHOLE,
        fields=_EXPERTS | _ATTENTION_BIAS,
    ),
    "qwen3_moe": DecoderFamily(
        read_qwen3_moe,
        num_kv_heads=4,
        attention_bias=True,
        qk_norm=QKNorm.HEAD,
        fields=_EXPERTS
        | _ATTENTION_BIAS
        | {
            *("decoder_sparse_step", "moe_intermediate_size", "mlp_only_layers"),
            *("max_window_layers", "sliding_window"),
        },
    ),
}
