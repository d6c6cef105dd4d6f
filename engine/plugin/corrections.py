"""Mends what transformers' code computes otherwise than the models were trained."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from engine.architecture.errors import UnsupportedError


def correct(model: nn.Module, config: Any) -> None:
    """Change a new model in place. Raises UnsupportedError."""
    if config.model_type == "nemotron_h":
        _leave_time_steps(model, config)


def _leave_time_steps(model: nn.Module, config: Any) -> None:
    """transformers raises a prompt's time steps to ``time_step_min``, which config.json has for the
    weights' initialization, and does not raise those of single tokens. What limits time steps is
    ``time_step_limit``: in all published checkpoints nothing does."""
    limit = tuple(config.time_step_limit)
    if limit != (0.0, math.inf):
        raise UnsupportedError(
            f"config.json: time_step_limit is {list(limit)}; only [0.0, Infinity] is supported"
        )
    for part in model.modules():
        if hasattr(part, "time_step_limit"):
            part.time_step_limit = limit
