"""Corrects what transformers' code computes differently from how the models were trained, and
refuses configurations of these models that it would compute wrongly."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from torch import nn

from engine.architecture.errors import UnsupportedError


def correct(model: nn.Module, config: Any) -> None:
    """Change a new model in place. Raises UnsupportedError."""
    if config.model_type == "nemotron_h":
        _check_groups(config)
        _remove_time_step_floor(model, config)
    if config.model_type == "phimoe":
        _pass_window(model, config)


def _pass_window(model: nn.Module, config: Any) -> None:
    """Pass the window to attention: transformers applies it only in its mask, which is not built
    here."""
    window = config.sliding_window
    if window is None or window >= config.max_position_embeddings:
        return
    layer: Any
    for layer in model.get_submodule("model.layers").children():
        attention = layer.self_attn
        attention.forward = partial(attention.forward, sliding_window=window)


def _check_groups(config: Any) -> None:
    """The trial's tiny model has one group, so it does not see a wrong number of them."""
    heads, groups = config.mamba_num_heads, config.n_groups
    if heads % groups:
        raise UnsupportedError(
            f"config.json: mamba_num_heads is {heads}, and must be a multiple of n_groups, {groups}"
        )


def _remove_time_step_floor(model: nn.Module, config: Any) -> None:
    """transformers raises a prompt's time steps to ``time_step_min``, which is meant for the
    weights' initialization, and does not raise those of single tokens. What limits time steps is
    ``time_step_limit``: in NVIDIA's checkpoints it is [0.0, Infinity]."""
    limit = tuple(config.time_step_limit)
    if limit != (0.0, math.inf):
        raise UnsupportedError(
            f"config.json: time_step_limit is {json.dumps(limit)}; only [0.0, Infinity] is "
            "supported"
        )
    mixer: Any
    for mixer in model.modules():
        if hasattr(mixer, "time_step_limit"):
            mixer.time_step_limit = limit
