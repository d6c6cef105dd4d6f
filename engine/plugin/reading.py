"""Reads a model directory for the plug-in: what it is, and whether it can be served."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.architecture.config import read_dtype
from engine.architecture.end_tokens import end_tokens
from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import read_object
from engine.architecture.text_part import text_fields, text_part
from engine.plugin.building import (
    model_without_head,
    named_class,
    new_model,
    read_source,
)
from engine.plugin.config import PluginConfig
from engine.plugin.gate import attention_layers
from engine.plugin.loading import holds_head_of
from engine.plugin.mixers import mixers
from engine.plugin.probe import probe
from engine.plugin.rope import freeze_frequencies, reach
from engine.plugin.trial import try_kind

_META = torch.device("meta")
_MOST_LAYERS = 512


def read_plugin_config(directory: Path, *, has_files: bool = False) -> PluginConfig:
    """Return what the engine needs to know, having probed the model and tried a tiny one; no weight
    is read. ``has_files``: whether safetensors files decide if there is an output head. Raises
    ConfigError, with the reason why it is not served, and WeightsError for unreadable files."""
    fields = read_object(directory / "config.json")
    found = text_part(fields)
    part = None if found is None else found[1]
    dtype = read_dtype(fields if part is None else text_fields(fields, part))
    source = read_source(directory)
    positions = getattr(source, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        raise UnsupportedError(f"{fields.source} does not say how many positions it has")
    layers = getattr(source, "num_hidden_layers", None)
    if isinstance(layers, int) and layers > _MOST_LAYERS:  # each takes time before anything is read
        raise UnsupportedError(
            f"{fields.source} has {layers} layers; at most {_MOST_LAYERS} are supported"
        )
    model = new_model(source, _META, torch.float32)
    architecture, generates = named_class(model, source) if found is None else (found[0], True)
    if generates and has_files:
        generates = holds_head_of(model, directory, part)
    if not generates:
        model = model_without_head(source, _META, torch.float32)
    usual, dynamic = reach(model, source.model_type, positions)
    freeze_frequencies(model, positions)
    probed = probe(model)
    keeping = mixers(model)
    attentions = attention_layers(model, source, probed.calls, keeping)
    try_kind(source)
    matrices = [each.shape[-2:] for each in model.parameters() if each.dim() >= 2]
    return PluginConfig(
        architecture=architecture,
        vocab_size=probed.vocab_size,
        hidden_size=probed.hidden_size,
        largest_matrix=max(shape.numel() for shape in matrices if probed.vocab_size not in shape),
        max_tokens=usual,
        dtype=dtype,
        eos_token_ids=end_tokens(directory),
        attentions=attentions,
        source=source,
        mixers=tuple(keeping),
        generates=generates,
        dynamic_tokens=dynamic,
        text_part=part,
    )
