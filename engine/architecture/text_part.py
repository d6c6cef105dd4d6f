"""The language model of a checkpoint that also reads images: where config.json describes it, and
where files store it.

Such a checkpoint is served as text. Encoders of other inputs are left out: neither described nor
read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields

# How names of the language model begin in a checkpoint, and in one of the language model alone.
_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
QUANTIZATION = ("quantization_config", "compression_config")
"""Names of the section that says how weights are quantized; the second is compressed-tensors' early
one."""
_DTYPES = ("dtype", "torch_dtype")


@dataclass(frozen=True, slots=True)
class TextModelPart:
    """``inputs``: what the checkpoint reads besides text; ``media``: how names of the tensors for
    these begin, with or without ``model.``; ``is_tied``: whether its embeddings are its output head
    where config.json does not say; ``text_type``: the language model's ``model_type``, likewise.
    ``whole_only``: fields of the whole that may be among the language model's: in a config.json
    without ``text_config``, or in a ``text_config`` that transformers made from such a one; None:
    there must be a ``text_config``."""

    inputs: tuple[str, ...]
    media: tuple[str, ...]
    text_type: str
    is_tied: bool = False
    whole_only: frozenset[str] | None = None

    def is_media(self, name: str) -> bool:
        """True for a tensor, or a module, that no text passes through."""
        return name.removeprefix("model.").startswith(self.media)


_QWEN_WHOLE = frozenset(
    {
        *("vision_config", "vision_start_token_id", "vision_end_token_id", "vision_token_id"),
        *("image_token_id", "video_token_id"),
    }
)
_IMAGES, _VIDEOS = ("image",), ("image", "video")
_VISUAL = ("visual.",)
_TOWER = ("vision_tower.", "multi_modal_projector.")
_LLAMA4 = ("vision_model.", "multi_modal_projector.")
_GEMMA = ("vision_tower.", "embed_vision.", "vision_embedder.", "audio_tower.", "embed_audio.")

# By the name in ``architectures``.
TEXT_PARTS: dict[str, TextModelPart] = {
    "Qwen2VLForConditionalGeneration": TextModelPart(
        _VIDEOS, _VISUAL, "qwen2_vl_text", whole_only=_QWEN_WHOLE
    ),
    "Qwen2_5_VLForConditionalGeneration": TextModelPart(
        _VIDEOS, _VISUAL, "qwen2_5_vl_text", whole_only=_QWEN_WHOLE
    ),
    "Qwen3VLForConditionalGeneration": TextModelPart(_VIDEOS, _VISUAL, "qwen3_vl_text"),
    "Qwen3VLMoeForConditionalGeneration": TextModelPart(_VIDEOS, _VISUAL, "qwen3_vl_moe_text"),
    "Qwen3_5ForConditionalGeneration": TextModelPart(_VIDEOS, _VISUAL, "qwen3_5_text"),
    "Qwen3_5MoeForConditionalGeneration": TextModelPart(_VIDEOS, _VISUAL, "qwen3_5_moe_text"),
    "Gemma3ForConditionalGeneration": TextModelPart(_IMAGES, _TOWER, "gemma3_text", is_tied=True),
    "Gemma3nForConditionalGeneration": TextModelPart(
        ("image", "audio"), _GEMMA, "gemma3n_text", is_tied=True
    ),
    "Gemma4ForConditionalGeneration": TextModelPart(
        ("image", "video", "audio"), _GEMMA, "gemma4_text", is_tied=True
    ),
    "Gemma4UnifiedForConditionalGeneration": TextModelPart(
        ("image", "video", "audio"), _GEMMA, "gemma4_unified_text", is_tied=True
    ),
    "Llama4ForConditionalGeneration": TextModelPart(_IMAGES, _LLAMA4, "llama4_text"),
    "Mistral3ForConditionalGeneration": TextModelPart(_IMAGES, _TOWER, "mistral", is_tied=True),
}


def text_part(fields: ConfigFields) -> tuple[str, TextModelPart] | None:
    """Return the architecture that config.json (``fields``) names, and its language model; None if
    it reads nothing but text. Raises ConfigError."""
    for name in fields.strings("architectures") or ():
        if name in TEXT_PARTS:
            part = TEXT_PARTS[name]
            if not fields.has("audio_config"):  # not every size of Gemma 4 takes audio
                part = replace(part, inputs=tuple(each for each in part.inputs if each != "audio"))
            return name, part
    return None


def text_fields(fields: ConfigFields, part: TextModelPart) -> ConfigFields:
    """Return what config.json (``fields``) says of the language model, except how its weights are
    quantized. Raises ConfigError."""
    section = fields.section("text_config")
    if section is None:
        if part.whole_only is None:
            raise ConfigError(f"{fields.source} has no text_config, which describes its text model")
        section = ConfigFields(fields.source, fields.values | {"model_type": part.text_type})
    # As in transformers, the dtype of the whole counts before that of a part: some checkpoints
    # of bfloat16 name float32 in text_config.
    dtypes = {name: fields.values[name] for name in _DTYPES if fields.has(name)}
    ignored = {*QUANTIZATION, *(part.whole_only or ()), *(_DTYPES if dtypes else ())}
    values = {name: value for name, value in section.values.items() if name not in ignored}
    values |= dtypes
    values["model_type"] = section.text("model_type", part.text_type)
    # Either flag may be the right one: the embeddings are the output head unless one is stored.
    is_tied = fields.flag("tie_word_embeddings", part.is_tied)
    values["tie_word_embeddings"] = is_tied or section.flag("tie_word_embeddings", False)
    return ConfigFields(section.source, values)


def module_names(name: str) -> tuple[str, ...]:
    """Return the names of a module, or a tensor, of the language model: as given, in a checkpoint
    of it alone, and in those of the whole. What files and config.json call it may differ, as
    transformers has renamed modules."""
    plain = text_name(f"{name}.").removesuffix(".")
    wholes = [
        f"{prefix}{f'{plain}.'.removeprefix(own)}".removesuffix(".")
        for prefix, own in _PREFIXES
        if f"{plain}.".startswith(own)
    ]
    return tuple(dict.fromkeys((name, plain, *wholes)))


def text_name(name: str) -> str:
    """Return the name of a tensor in a checkpoint of the language model alone."""
    for prefix, plain in _PREFIXES:
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name
