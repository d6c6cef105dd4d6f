"""Kernels run on a GPU where there is one, else through Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder of one layer, for what is the same in each: the interpreter takes its time."""
    from tests.engine.tiny_models import VARIANTS, save_model

    variant = VARIANTS["qwen3"]
    directory = tmp_path_factory.mktemp("one-layer")
    save_model(replace(variant, settings=variant.settings | {"num_hidden_layers": 1}), directory)
    return directory
