"""Kernels run where triton compiles or interprets them; elsewhere the message says why."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.architecture.config import ModelConfig, load_model_config
from engine.gpu.availability import KernelsUnavailableError, kernels_fit, require_triton

CONFIG = """{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 512,
    "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2
}"""


@pytest.fixture
def config(tmp_path: Path) -> ModelConfig:
    (tmp_path / "config.json").write_text(CONFIG)
    return load_model_config(tmp_path)


def test_without_triton_no_device_has_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for device in ("cpu", "cuda"):
        with pytest.raises(KernelsUnavailableError, match="not installed"):
            require_triton(torch.device(device))


def test_a_cpu_has_kernels_only_where_they_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    require_triton(torch.device("cpu"))
    for value in ("0", ""):
        monkeypatch.setenv("TRITON_INTERPRET", value)
        require_triton(torch.device("cuda"))
        with pytest.raises(KernelsUnavailableError, match="for GPUs only"):
            require_triton(torch.device("cpu"))


def test_kernels_know_rotary_models_with_heads_that_fit_into_a_tile(config: ModelConfig) -> None:
    assert config.head_dim == 256
    assert kernels_fit(config)
    assert not kernels_fit(replace(config, head_dim=272))
    assert not kernels_fit(replace(config, rope=None))
