"""Which architectures GGUF files may have, and how each one's files differ from Llama's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.architecture.errors import UnsupportedError
from engine.gguf import settings
from engine.gguf.cohere import cohere, cohere2
from engine.gguf.container import GgufHeader
from engine.gguf.deepseek import deepseek2
from engine.gguf.gemma4 import gemma4
from engine.gguf.glm4 import glm4, glm4_moe
from engine.gguf.granite import granite, granite_hybrid, granite_moe, granite_moe_shared
from engine.gguf.keys import ARCHITECTURE_KEY, ArchitectureKeys, GgufKeys
from engine.gguf.lfm2 import lfm2, lfm2_moe
from engine.gguf.names import ROPE_FACTORS
from engine.gguf.qwen35 import qwen3_next, qwen35, qwen35_moe
from engine.gguf.settings import LONG_FACTORS, SHORT_FACTORS, FamilyReader

# End a turn in chat templates, and so an answer, even if a file's keys do not name them.
_TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>"})
_GLM_ENDS = _TURN_ENDS | {"<|user|>", "<|observation|>"}


@dataclass(frozen=True, slots=True)
class GgufFamily:
    architecture: str
    """As in config.json."""
    permuted: bool = False
    """Rows of query and key are in the order in which pairs to rotate are adjacent, instead of half
    a head apart."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """What a layer's modules are called, where that is not as in Llama's files."""
    vectors: frozenset[str] = frozenset()
    """Tensors that belong to the configuration."""
    settings: FamilyReader = settings.nothing
    """Returns the fields of config.json that not all families have."""
    end_tokens: frozenset[str] = _TURN_ENDS
    """Texts of the tokens after which an answer ends, besides those that keys name."""
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
    norm_key: str = "attention.layer_norm_rms_epsilon"
    """The key of the epsilon of the norms."""
    has_mla: bool = False
    """Multi-head latent attention: head_dim is the rotary part of a head, and every head has keys
    and values."""
    by_transformers: bool = False
    """Computed by transformers' code, not by ours."""
    variants: Mapping[str, GgufFamily] = field(default_factory=dict)
    """The family to use instead, by the key that selects it when set and not 0."""
    by_tensors: Mapping[str, GgufFamily] = field(default_factory=dict)
    """The family to use instead, by the tensor that selects it when present."""


_NORMS_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA_NORMS = {**_NORMS_AFTER, "pre_feedforward_layernorm": "ffn_norm"}


def _projections(module: str, ending: str) -> dict[str, str]:
    return {f"{module}.{one}_proj": f"ffn_{one}_{ending}" for one in ("gate", "up", "down")}


_GATE_UP = dict.fromkeys(("mlp.experts.gate_proj", "mlp.experts.up_proj"), "ffn_gate_up_exps")
_QWEN35 = GgufFamily(
    "Qwen3_5ForCausalLM",
    modules={
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    },
    settings=qwen35,
    has_partial_rope=True,
    by_transformers=True,
)
_GATED_SHARED_EXPERT = {
    **_projections("mlp.shared_expert", "shexp"),
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_QWEN35_MOE = replace(
    _QWEN35,
    architecture="Qwen3_5MoeForCausalLM",
    modules={**_QWEN35.modules, **_GATED_SHARED_EXPERT},
    settings=qwen35_moe,
    has_experts=True,
)

_SHARED_EXPERTS = _projections("mlp.shared_experts", "shexp")
_LFM2 = GgufFamily(
    "Lfm2ForCausalLM",
    modules={
        "operator_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "conv.conv": "shortconv.conv",
        "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w2": "ffn_down",
        "feed_forward.w3": "ffn_up",
    },
    settings=lfm2,
    has_layers_without_kv=True,
    by_transformers=True,
)
_GRANITE_EXPERTS = {
    "block_sparse_moe.router": "ffn_gate_inp",
    **_projections("block_sparse_moe.experts", "exps"),
    "shared_mlp.gate_proj": "ffn_gate_shexp",
    "shared_mlp.up_proj": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
_GRANITE_MOE = GgufFamily(
    "GraniteMoeForCausalLM",
    permuted=True,
    modules=_GRANITE_EXPERTS,
    settings=granite_moe,
    has_experts=True,
    by_transformers=True,
)
_MAMBA2 = {
    "mamba.in_proj": "ssm_in",
    "mamba.conv1d": "ssm_conv1d",
    "mamba.norm": "ssm_norm",
    "mamba.out_proj": "ssm_out",
}
_GRANITE_HYBRID = GgufFamily(
    "GraniteMoeHybridForCausalLM",
    permuted=True,
    modules={
        **_MAMBA2,
        "shared_mlp.gate_proj": "ffn_gate",
        "shared_mlp.up_proj": "ffn_up",
        "shared_mlp.output_linear": "ffn_down",
    },
    settings=granite_hybrid,
    has_layers_without_kv=True,
    by_transformers=True,
)

_COHERE = GgufFamily(
    "CohereForCausalLM",
    settings=cohere,
    norm_key="attention.layer_norm_epsilon",
    by_transformers=True,
)

# By general.architecture. Mistral's models are "llama" too, or "mistral3".
FAMILIES: dict[str, GgufFamily] = {
    "llama": GgufFamily(
        "LlamaForCausalLM",
        permuted=True,
        variants={
            "expert_count": GgufFamily(
                "MixtralForCausalLM", permuted=True, settings=settings.mixtral, has_experts=True
            )
        },
    ),
    "mistral3": GgufFamily(
        "LlamaForCausalLM",
        permuted=True,
        settings=settings.mistral3,
        variants={
            "attention.temperature_scale": GgufFamily(
                "Ministral3ForCausalLM", permuted=True, settings=settings.ministral3
            )
        },
    ),
    "qwen2": GgufFamily("Qwen2ForCausalLM"),
    "qwen3": GgufFamily("Qwen3ForCausalLM"),
    "qwen2moe": GgufFamily(
        "Qwen2MoeForCausalLM",
        modules=_GATED_SHARED_EXPERT,
        settings=settings.qwen2_moe,
        has_experts=True,
        by_transformers=True,
    ),
    # Text models of multimodal files; the image encoder is a separate file (mmproj).
    "qwen2vl": GgufFamily("Qwen2ForCausalLM"),
    "qwen3vl": GgufFamily("Qwen3ForCausalLM"),
    "qwen3vlmoe": GgufFamily("Qwen3MoeForCausalLM", settings=settings.qwen3_moe, has_experts=True),
    "qwen3moe": GgufFamily("Qwen3MoeForCausalLM", settings=settings.qwen3_moe, has_experts=True),
    "gemma": GgufFamily("GemmaForCausalLM", settings=settings.gemma, by_transformers=True),
    "gemma2": GgufFamily(
        "Gemma2ForCausalLM",
        modules=_GEMMA_NORMS,
        settings=settings.gemma2,
        by_transformers=True,
    ),
    "gemma3": GgufFamily(
        "Gemma3ForCausalLM",
        modules=_GEMMA_NORMS,
        settings=settings.gemma3,
        is_wide=True,
    ),
    "gemma4": GgufFamily(
        "Gemma4ForCausalLM",
        modules={
            **_GEMMA_NORMS,
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
            "per_layer_input_gate": "inp_gate",
            "per_layer_projection": "proj",
            "post_per_layer_input_norm": "post_norm",
            **_GATE_UP,
        },
        vectors=frozenset({ROPE_FACTORS}),
        settings=gemma4,
        end_tokens=_TURN_ENDS | {"<turn|>", "<|tool_response>"},
        is_wide=True,
        has_experts=True,
        layers_differ=True,
    ),
    "gpt-oss": GgufFamily(
        "GptOssForCausalLM",
        modules={
            "post_attention_layernorm": "post_attention_norm",
            "mlp.router": "ffn_gate_inp",
        },
        settings=settings.gpt_oss,
        end_tokens=frozenset({"<|return|>", "<|call|>"}),
        has_experts=True,
        by_transformers=True,
    ),
    "glm4": GgufFamily(
        "Glm4ForCausalLM",
        modules={
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
        },
        settings=glm4,
        end_tokens=_GLM_ENDS,
        has_partial_rope=True,
        by_transformers=True,
    ),
    "glm4moe": GgufFamily(
        "Glm4MoeForCausalLM",
        modules={
            "post_attention_layernorm": "post_attention_norm",
            **_SHARED_EXPERTS,
        },
        settings=glm4_moe,
        end_tokens=_GLM_ENDS,
        has_partial_rope=True,
        has_experts=True,
        by_transformers=True,
    ),
    "seed_oss": GgufFamily(
        "SeedOssForCausalLM",
        modules={"post_attention_layernorm": "post_attention_norm"},
        settings=settings.seed_oss,
        by_transformers=True,
    ),
    "command-r": _COHERE,
    "cohere2": replace(_COHERE, architecture="Cohere2ForCausalLM", settings=cohere2),
    "deepseek2": GgufFamily(
        "DeepseekV3ForCausalLM",
        modules={
            "self_attn.q_a_proj": "attn_q_a",
            "self_attn.q_a_layernorm": "attn_q_a_norm",
            "self_attn.q_b_proj": "attn_q_b",
            "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm",
            "self_attn.kv_b_proj": "attn_kv_b",
            "self_attn.k_b_proj": "attn_k_b",
            "self_attn.v_b_proj": "attn_v_b",
            **_SHARED_EXPERTS,
        },
        settings=deepseek2,
        end_tokens=_GLM_ENDS,  # GLM-4.7 Flash is deepseek2 too
        has_experts=True,
        has_mla=True,
        by_transformers=True,
    ),
    "qwen3next": replace(
        _QWEN35_MOE,
        architecture="Qwen3NextForCausalLM",
        modules={
            **_QWEN35_MOE.modules,
            "linear_attn.in_proj_ba": "ssm_ba",
            "linear_attn.in_proj_qkvz": "ssm_in",
        },
        settings=qwen3_next,
    ),
    "qwen35": _QWEN35,
    "qwen35moe": replace(
        _QWEN35_MOE,
        by_tensors={
            "blk.0.ffn_gate_up_exps.weight": replace(
                _QWEN35_MOE, modules={**_QWEN35_MOE.modules, **_GATE_UP}
            )
        },
    ),
    "phi3": GgufFamily(
        "Phi3ForCausalLM",
        modules={
            **dict.fromkeys((f"self_attn.{one}_proj" for one in "qkv"), "attn_qkv"),
            "mlp.gate_proj": "ffn_up",
        },
        vectors=frozenset({LONG_FACTORS, SHORT_FACTORS}),
        settings=settings.phi3,
        end_tokens=_TURN_ENDS | {"<|end|>"},
        has_partial_rope=True,
    ),
    "granite": GgufFamily("GraniteForCausalLM", permuted=True, settings=granite),
    "granitemoe": replace(
        _GRANITE_MOE,
        variants={
            "expert_shared_feed_forward_length": replace(
                _GRANITE_MOE,
                architecture="GraniteMoeSharedForCausalLM",
                settings=granite_moe_shared,
            )
        },
    ),
    "granitehybrid": replace(
        _GRANITE_HYBRID,
        variants={
            "expert_count": replace(
                _GRANITE_HYBRID, modules={**_MAMBA2, **_GRANITE_EXPERTS}, has_experts=True
            )
        },
    ),
    "lfm2": _LFM2,
    "lfm2moe": replace(
        _LFM2,
        architecture="Lfm2MoeForCausalLM",
        modules={
            **_LFM2.modules,
            "feed_forward.gate": "ffn_gate_inp",
            **_projections("feed_forward.experts", "exps"),
        },
        settings=lfm2_moe,
        has_experts=True,
    ),
    "smollm3": GgufFamily("SmolLM3ForCausalLM", permuted=True, settings=settings.smollm3),
    "olmo2": GgufFamily(
        "Olmo2ForCausalLM",
        modules=_NORMS_AFTER,
        variants={
            "attention.sliding_window": GgufFamily(
                "Olmo3ForCausalLM", modules=_NORMS_AFTER, settings=settings.olmo3
            )
        },
    ),
    "olmoe": GgufFamily("OlmoeForCausalLM", settings=settings.olmoe, has_experts=True),
}


def keys_of(header: GgufHeader) -> ArchitectureKeys:
    """Raises ConfigError."""
    keys = GgufKeys(header)
    return ArchitectureKeys(header, keys, keys.text(ARCHITECTURE_KEY))


def family_of(header: GgufHeader) -> GgufFamily:
    """Raises ConfigError, and UnsupportedError for an architecture that is not one of these."""
    keys = keys_of(header)
    if keys.prefix == "clip":
        raise UnsupportedError(
            f"{header.path} has the encoder of a model that reads images or sound; name the file "
            "of the language model"
        )
    family = FAMILIES.get(keys.prefix)
    if family is None:
        raise UnsupportedError(
            f"{header.path}: {ARCHITECTURE_KEY} {keys.prefix!r} is not supported as GGUF; "
            f"supported: {', '.join(FAMILIES)}; for others, serve the original checkpoint"
        )
    family = next((other for key, other in family.variants.items() if keys.is_set(key)), family)
    family = next(
        (other for name, other in family.by_tensors.items() if name in header.tensors), family
    )
    if keys.is_set("expert_count") and not family.has_experts:
        raise UnsupportedError(
            f"{header.path}: mixtures of experts of {ARCHITECTURE_KEY} {keys.prefix!r} are not "
            "supported as GGUF; serve the original checkpoint"
        )
    return family
