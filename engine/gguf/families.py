"""Which architectures GGUF files may have, and how each one's files differ from Llama's."""

from __future__ import annotations

from dataclasses import replace

from engine.architecture.errors import UnsupportedError
from engine.gguf import settings
from engine.gguf.apertus import activation_parameters, apertus
from engine.gguf.bailing import bailing_moe2
from engine.gguf.cohere import cohere, cohere2
from engine.gguf.container import GgufHeader
from engine.gguf.deepseek import deepseek2
from engine.gguf.dots1 import dots1
from engine.gguf.ernie import ernie4_5_moe
from engine.gguf.exaone4 import exaone4
from engine.gguf.family import (
    FUSED_ATTENTION,
    GATE_UP,
    GATED_SHARED_EXPERT,
    GRANITE_EXPERTS,
    LATENT_ATTENTION,
    SHARED_EXPERTS,
    TURN_ENDS,
    GgufFamily,
    projections,
)
from engine.gguf.gemma3n import gemma3n
from engine.gguf.gemma4 import gemma4
from engine.gguf.glm4 import glm4, glm4_moe
from engine.gguf.gpt2 import gpt2
from engine.gguf.granite import granite, granite_moe, granite_moe_shared
from engine.gguf.hunyuan import hunyuan_dense, hunyuan_moe
from engine.gguf.hybrids import HYBRIDS
from engine.gguf.keys import ARCHITECTURE_KEY, ArchitectureKeys, GgufKeys
from engine.gguf.minimax import minimax_m2
from engine.gguf.names import ROPE_FACTORS
from engine.gguf.settings import LONG_FACTORS, SHORT_FACTORS
from engine.gguf.starcoder2 import starcoder2

_GLM_ENDS = TURN_ENDS | {"<|user|>", "<|observation|>"}
_ERNIE_ENDS = TURN_ENDS | {"<|end_of_sentence|>"}
_NORMS_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_GEMMA_NORMS = {**_NORMS_AFTER, "pre_feedforward_layernorm": "ffn_norm"}
_PER_LAYER_INPUTS = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
_GRANITE_MOE = GgufFamily(
    "GraniteMoeForCausalLM",
    permuted=True,
    modules=GRANITE_EXPERTS,
    settings=granite_moe,
    has_experts=True,
    by_transformers=True,
)
_HUNYUAN = GgufFamily(
    "HunYuanDenseV1ForCausalLM",
    modules={
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
    },
    settings=hunyuan_dense,
    end_tokens=TURN_ENDS | {"<｜hy_place▁holder▁no▁2｜>", "<|eos|>"},
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
        modules=GATED_SHARED_EXPERT,
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
    "gemma3n": GgufFamily(
        "Gemma3nForCausalLM",
        modules={
            **_GEMMA_NORMS,
            **_PER_LAYER_INPUTS,
            "altup.correction_coefs": "altup_correct_coef",
            "altup.prediction_coefs": "altup_predict_coef",
            "altup.modality_router": "altup_router",
            "altup.router_norm": "altup_router_norm",
            "laurel.linear_left": "laurel_l",
            "laurel.linear_right": "laurel_r",
            "laurel.post_laurel_norm": "laurel_post_norm",
        },
        settings=gemma3n,
        by_transformers=True,
    ),
    "gemma4": GgufFamily(
        "Gemma4ForCausalLM",
        modules={
            **_GEMMA_NORMS,
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
            **_PER_LAYER_INPUTS,
            **GATE_UP,
        },
        vectors=frozenset({ROPE_FACTORS}),
        settings=gemma4,
        end_tokens=TURN_ENDS | {"<turn|>", "<|tool_response>"},
        is_wide=True,
        has_experts=True,
        layers_differ=True,
    ),
    "gpt2": GgufFamily(
        "GPT2LMHeadModel",
        modules={
            "ln_1": "attn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "ln_2": "ffn_norm",
            "mlp.c_fc": "ffn_up",
            "mlp.c_proj": "ffn_down",
        },
        transposed=frozenset({"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}),
        settings=gpt2,
        norm_key="attention.layer_norm_epsilon",
        has_rope=False,
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
            **SHARED_EXPERTS,
        },
        settings=glm4_moe,
        end_tokens=_GLM_ENDS,
        has_partial_rope=True,
        has_experts=True,
        by_transformers=True,
    ),
    "bailingmoe2": GgufFamily(
        "Glm4MoeForCausalLM",
        modules={**FUSED_ATTENTION, **SHARED_EXPERTS},
        settings=bailing_moe2,
        end_tokens=TURN_ENDS | {"<|role_end|>"},
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
            **LATENT_ATTENTION,
            **SHARED_EXPERTS,
        },
        settings=deepseek2,
        end_tokens=_GLM_ENDS,  # GLM-4.7 Flash is deepseek2 too
        has_experts=True,
        has_mla=True,
        by_transformers=True,
    ),
    "phi3": GgufFamily(
        "Phi3ForCausalLM",
        modules={
            **FUSED_ATTENTION,
            "mlp.gate_proj": "ffn_up",
        },
        vectors=frozenset({LONG_FACTORS, SHORT_FACTORS}),
        settings=settings.phi3,
        end_tokens=TURN_ENDS | {"<|end|>"},
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
    # A Llama whose matrix of queries, keys and values is divided when it is converted.
    "internlm2": GgufFamily("LlamaForCausalLM", permuted=True),
    # The converter leaves the pairs to rotate adjacent, as Ernie has them: a Llama in all else.
    "ernie4_5": GgufFamily("LlamaForCausalLM", permuted=True, end_tokens=_ERNIE_ENDS),
    "ernie4_5-moe": GgufFamily(
        "Ernie4_5_MoeForCausalLM",
        modules=SHARED_EXPERTS,
        settings=ernie4_5_moe,
        end_tokens=_ERNIE_ENDS,
        has_experts=True,
        by_transformers=True,
    ),
    "exaone4": GgufFamily(
        "Exaone4ForCausalLM",
        modules=_NORMS_AFTER,
        settings=exaone4,
        end_tokens=TURN_ENDS | {"[|endofturn|]"},
        has_rope_factors=True,
        by_transformers=True,
    ),
    "hunyuan-dense": _HUNYUAN,
    "hunyuan-moe": replace(
        _HUNYUAN,
        architecture="HunYuanMoEV1ForCausalLM",
        modules={
            **_HUNYUAN.modules,
            "mlp.gate.wg": "ffn_gate_inp",
            **projections("mlp.shared_mlp", "shexp"),
        },
        settings=hunyuan_moe,
        has_experts=True,
    ),
    "minimax-m2": GgufFamily(
        "MiniMaxM2ForCausalLM",
        settings=minimax_m2,
        end_tokens=TURN_ENDS | {"[e~["},
        has_partial_rope=True,
        has_experts=True,
        by_transformers=True,
    ),
    "dots1": GgufFamily(
        "Dots1ForCausalLM",
        modules=SHARED_EXPERTS,
        settings=dots1,
        end_tokens=TURN_ENDS | {"<|endofresponse|>"},
        has_experts=True,
        by_transformers=True,
    ),
    "apertus": GgufFamily(
        "ApertusForCausalLM",
        modules={"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
        settings=apertus,
        parameters=activation_parameters,
        end_tokens=TURN_ENDS | {"<|assistant_end|>", "<|tools_suffix|>"},
        has_rope_factors=True,
        by_transformers=True,
    ),
    "starcoder2": GgufFamily(
        "Starcoder2ForCausalLM",
        modules={"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
        settings=starcoder2,
        norm_key="attention.layer_norm_epsilon",
        by_transformers=True,
    ),
    **HYBRIDS,
}

_FUSED = "blk.0.attn_qkv.weight"


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
    # Some converters write 1 for a dense model.
    if not family.has_experts and keys.is_set("expert_count") and not keys.says("expert_count", 1):
        raise UnsupportedError(
            f"{header.path}: mixtures of experts of {ARCHITECTURE_KEY} {keys.prefix!r} are not "
            "supported as GGUF; serve the original checkpoint"
        )
    if _FUSED in header.tensors and "attn_qkv" not in family.modules.values():
        raise UnsupportedError(
            f"{header.path}: {_FUSED} is not supported for {keys.prefix!r}; convert the checkpoint "
            "without --fuse-qkv"
        )
    return family
