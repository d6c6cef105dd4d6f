"""Reads a checkpoint's weights into a model of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from engine.architecture.errors import WeightsError
from engine.plugin.building import first_line
from engine.plugin.config import PluginConfig
from engine.plugin.interface import NAME
from engine.weights.weights import RandomWeights, checkpoint_files

_SHOWN = 5


def loaded_model(
    config: PluginConfig, directory: Path, device: torch.device, dtype: torch.dtype
) -> nn.Module:
    """Return the model with the checkpoint's weights, which must be exactly its parameters. Raises
    WeightsError."""
    checkpoint_files(directory)  # safetensors, or nothing
    try:
        found: Any = AutoModelForCausalLM.from_pretrained(
            directory,
            config=config.source,
            dtype=dtype,
            attn_implementation=NAME,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # reported below, with the others
            output_loading_info=True,
        )
    except Exception as error:
        raise WeightsError(
            f"transformers cannot read the weights in {directory} ({first_line(error)})"
        ) from error
    model, report = found
    complaints = [
        f"{what}: {_some(report[key])}"
        for what, key in (
            ("missing", "missing_keys"),
            ("misshapen", "mismatched_keys"),
            ("unexpected", "unexpected_keys"),
            ("unreadable", "conversion_errors"),
        )
        if report.get(key)
    ]
    if complaints:
        raise WeightsError(
            f"the weights in {directory} do not fit its config.json; " + "; ".join(complaints)
        )
    placed: nn.Module = model.to(device).eval()
    return placed


def _some(found: Any) -> str:
    names = sorted(str(one[0] if isinstance(one, tuple) else one) for one in found)
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def fill_randomly(model: nn.Module, seed: int) -> None:
    """Give a model random weights, as ``RandomWeights`` does. Buffers stay as they are."""
    parameters = dict(model.named_parameters())
    first = next(iter(parameters.values()))
    source = RandomWeights(
        {name: tuple(parameter.shape) for name, parameter in parameters.items()},
        seed=seed,
        dtype=first.dtype,
        device=first.device,
        progress=lambda done, total: None,
    )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(source.tensor(name))
