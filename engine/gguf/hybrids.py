"""How the files of hybrids differ from Llama's: models of which some layers keep a state instead of
keys and values."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.falcon_h1 import falcon_h1
from engine.gguf.family import (
    GATE_UP,
    GATED_SHARED_EXPERT,
    GRANITE_EXPERTS,
    LATENT_ATTENTION,
    SHARED_EXPERTS,
    GgufFamily,
    projections,
)
from engine.gguf.granite import granite_hybrid
from engine.gguf.kimi_linear import kimi_linear
from engine.gguf.lfm2 import lfm2, lfm2_moe
from engine.gguf.nemotron_h import nemotron_h, nemotron_h_moe
from engine.gguf.qwen35 import qwen3_next, qwen35, qwen35_moe

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
_QWEN35_MOE = replace(
    _QWEN35,
    architecture="Qwen3_5MoeForCausalLM",
    modules={**_QWEN35.modules, **GATED_SHARED_EXPERT},
    settings=qwen35_moe,
    has_experts=True,
)
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
_OF_MAMBA2 = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
_MAMBA2 = {f"mamba.{module}": stored for module, stored in _OF_MAMBA2.items()}
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
_NEMOTRON_H = GgufFamily(
    "NemotronHForCausalLM",
    modules={
        "norm": "attn_norm",
        **{f"mixer.{module}": stored for module, stored in _OF_MAMBA2.items()},
        "mixer.q_proj": "attn_q",
        "mixer.k_proj": "attn_k",
        "mixer.v_proj": "attn_v",
        "mixer.o_proj": "attn_output",
        "mixer.up_proj": "ffn_up",
        "mixer.down_proj": "ffn_down",
    },
    settings=nemotron_h,
    has_layers_without_kv=True,
    has_layers_without_feed_forward=True,
    has_rope=False,
    by_transformers=True,
)

# By general.architecture.
HYBRIDS: dict[str, GgufFamily] = {
    "falcon-h1": GgufFamily(
        "FalconH1ForCausalLM",
        modules={
            **_MAMBA2,
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
        },
        settings=falcon_h1,
        by_transformers=True,
    ),
    "granitehybrid": replace(
        _GRANITE_HYBRID,
        variants={
            "expert_count": replace(
                _GRANITE_HYBRID, modules={**_MAMBA2, **GRANITE_EXPERTS}, has_experts=True
            )
        },
    ),
    "kimi-linear": GgufFamily(
        "KimiLinearForCausalLM",
        modules={
            **LATENT_ATTENTION,
            **SHARED_EXPERTS,
            **{f"self_attn.{one}_conv1d": f"ssm_conv1d_{one}" for one in "qkv"},
            "self_attn.forget_gate.f_a_proj": "ssm_f_a",
            "self_attn.forget_gate.f_b_proj": "ssm_f_b",
            "self_attn.b_proj": "ssm_beta",
            "self_attn.g_a_proj": "ssm_g_a",
            "self_attn.g_b_proj": "ssm_g_b",
            "self_attn.o_norm": "ssm_norm",
        },
        settings=kimi_linear,
        has_rope=False,
        has_experts=True,
        has_mla=True,
        by_transformers=True,
    ),
    "lfm2": _LFM2,
    "lfm2moe": replace(
        _LFM2,
        architecture="Lfm2MoeForCausalLM",
        modules={
            **_LFM2.modules,
            "feed_forward.gate": "ffn_gate_inp",
            **projections("feed_forward.experts", "exps"),
        },
        settings=lfm2_moe,
        has_experts=True,
    ),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": replace(
        _NEMOTRON_H,
        modules={
            **_NEMOTRON_H.modules,
            "mixer.gate": "ffn_gate_inp",
            "mixer.experts.up_proj": "ffn_up_exps",
            "mixer.experts.down_proj": "ffn_down_exps",
            "mixer.shared_experts.up_proj": "ffn_up_shexp",
            "mixer.shared_experts.down_proj": "ffn_down_shexp",
            "mixer.fc1_latent_proj": "ffn_latent_down",
            "mixer.fc2_latent_proj": "ffn_latent_up",
        },
        settings=nemotron_h_moe,
        has_experts=True,
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
                _QWEN35_MOE, modules={**_QWEN35_MOE.modules, **GATE_UP}
            )
        },
    ),
}
