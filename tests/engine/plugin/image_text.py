"""Tiny random checkpoints of models that also read images, as transformers writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from engine.plugin.rope import freeze_frequencies
from engine.plugin.shrinking import VOCABULARY, shrunk_values
from engine.plugin.trial import fill_strongly
from tests.engine.plugin.families import VARIANTS, save_family, vary_buffers

# By what computes them here: "model type:type of the text model", and of this perhaps a variant
# (TEXT_VARIANTS, or VARIANTS of ``families``).
NATIVE_TEXT = (
    *("qwen3_vl:qwen3_vl_text", "qwen2_5_vl:qwen2_5_vl_text", "qwen2_vl:qwen2_vl_text"),
    *("gemma3:gemma3_text#linear", "mistral3:mistral", "mistral3:ministral3#short"),
    *("qwen2_5_vl:qwen2_5_vl_text#yarn", "qwen2_5_vl:qwen2_5_vl_text#window"),
    *("qwen3_vl_moe:qwen3_vl_moe_text", "qwen3_vl_moe:qwen3_vl_moe_text#dense"),
    "gemma4_unified:gemma4_unified_text#12b",
    *("llama4:llama4_text#scout", "llama4:llama4_text#maverick"),
    *("gemma4:gemma4_text#31b", "gemma4:gemma4_text#moe", "gemma4:gemma4_text#shared"),
)
PLUGIN_TEXT = ("qwen3_5:qwen3_5_text", "qwen3_5_moe:qwen3_5_moe_text")
# Its encoder of images is timm's, without which transformers makes no whole model.
WITHOUT_WHOLE = ("gemma3n:gemma3n_text",)

# Positions have three axes: how many pairs of a head turn by each.
_AXES = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
TEXT_VARIANTS: dict[str, dict[str, Any]] = {
    **VARIANTS,
    "qwen3_vl_text": {"rope_parameters": _AXES | {"mrope_interleaved": True}},
    "qwen3_vl_moe_text": {
        "rope_parameters": _AXES | {"mrope_interleaved": True},
        "moe_intermediate_size": 48,
    },
    "qwen3_vl_moe_text#dense": {
        "rope_parameters": _AXES | {"mrope_interleaved": True},
        "moe_intermediate_size": 48,
        "mlp_only_layers": [1],
        "attention_bias": True,
    },
    "qwen2_5_vl_text": {"rope_parameters": _AXES, "rms_norm_eps": 1e-6},
    "qwen2_vl_text": {"rope_parameters": _AXES},
    "qwen2_5_vl_text#yarn": {
        "rope_parameters": _AXES
        | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    },
    "gemma4_text#shared": {
        "num_kv_shared_layers": 2,
        "use_bidirectional_attention": "vision",
    },
    "qwen2_5_vl_text#window": {
        "rope_parameters": _AXES,
        "use_sliding_window": True,
        "sliding_window": 9,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
    },
}
# Small sizes of encoders of images, as they are called by one family or another.
_ENCODER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "embed_dim"), 32),
    **dict.fromkeys(("depth", "num_hidden_layers"), 1),
    **dict.fromkeys(("num_heads", "num_attention_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "global_head_dim"), 16),
    **dict.fromkeys(("out_hidden_size",), 64),
    **{name: [0] for name in ("deepstack_visual_indexes", "fullatt_block_indexes")},
    **{"intermediate_size": 48, "image_size": 28, "patch_size": 14},
    **dict.fromkeys(("mm_embed_dim", "audio_embed_dim"), 32),
    **{"mm_posemb_size": 16},
    **dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), 32),
    **{"position_embedding_size": 64, "num_position_embeddings": 16, "output_proj_dims": 64},
}
# An image, which no prompt has and no answer: transformers embeds it as something else.
_OTHER_TOKEN = 1 << 20


def tiny_image_text_config(kind: str, *, vocabulary: int = VOCABULARY) -> Any:
    """``vocabulary``: tokens."""
    family, _, text_kind = kind.partition(":")
    text_type = text_kind.partition("#")[0]
    audio = f"{family}_audio" if family.startswith("gemma4") else ""
    config = AutoConfig.for_model(family, text_config={"model_type": text_type})
    text = shrunk_values(_values(config.get_text_config()))
    text |= TEXT_VARIANTS.get(text_kind, {}) | {"model_type": text_type, "eos_token_id": None}
    text["vocab_size"] = vocabulary
    whole = type(config)(
        text_config=text,
        vision_config=_encoder(config.vision_config or AutoConfig.for_model(f"{family}_vision")),
        **({"audio_config": _encoder(AutoConfig.for_model(audio))} if audio else {}),
    )
    for name in whole.to_dict():
        if name.startswith(("image_token", "video_token", "vision_")) and "config" not in name:
            setattr(whole, name, _OTHER_TOKEN)
    return whole


def save_gemma3n(directory: Path) -> PreTrainedModel:
    """Write a checkpoint as on the hub, with keys and values also for layers that share others'.
    Return its language model as transformers reads it."""
    oracle = save_family("gemma3n_text", directory)
    whole = AutoConfig.for_model("gemma3n", text_config=oracle.config.to_dict())
    whole.architectures = ["Gemma3nForConditionalGeneration"]
    whole.save_pretrained(directory)
    path = directory / "model.safetensors"
    tensors = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in load_file(path).items()
    }
    for name in ("vision_tower.timm_model", "audio_tower", "embed_vision", "embed_audio"):
        tensors[f"model.{name}.weight"] = torch.ones(2)
    for layer in (2, 3):
        for name in ("k_proj", "v_proj", "k_norm"):
            tensors[f"model.language_model.layers.{layer}.self_attn.{name}.weight"] = torch.ones(2)
    save_file(tensors, path, metadata={"format": "pt"})
    return oracle


def architecture_of(kind: str) -> str:
    """Return the class of the whole."""
    return str(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[kind.partition(":")[0]])


def _encoder(config: Any) -> dict[str, Any]:
    values = _values(config)
    return values | {name: size for name, size in _ENCODER.items() if name in values}


def _values(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.to_dict().items() if not name.startswith("_")}


def save_image_text(
    kind: str, directory: Path, *, is_tied: bool | None = None, vocabulary: int = VOCABULARY
) -> PreTrainedModel:
    """Write a checkpoint with all its parts; return the model as transformers reads it, or its
    language model, with its eager attention. ``is_tied``: None: as the family does by default."""
    torch.manual_seed(0)
    config = tiny_image_text_config(kind, vocabulary=vocabulary)
    if is_tied is not None:
        config.tie_word_embeddings = is_tied
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    fill_strongly(model)
    vary_buffers(model)
    model.save_pretrained(directory)
    oracle: PreTrainedModel = AutoModelForImageTextToText.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    if kind.startswith("llama4:"):  # the whole raises an error at its end in transformers 5.24
        oracle = oracle.language_model
    freeze_frequencies(oracle, config.get_text_config().max_position_embeddings)
    return oracle.eval()
