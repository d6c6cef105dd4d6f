"""Kernels run where triton compiles or interprets them; elsewhere the message says why."""

from __future__ import annotations

import importlib.util
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.architecture.config import ModelConfig, load_model_config
from engine.architecture.features import Multipliers, NormPlace, QKNorm, QueryScaling
from engine.gpu.availability import (
    KernelsUnavailableError,
    kernels_fit,
    prepare_early_launch,
    require_kernels,
)

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
            require_kernels(torch.device(device))


def test_a_cpu_has_kernels_only_where_they_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    require_kernels(torch.device("cpu"), is_cache_fp8=True)
    for value in ("0", ""):
        monkeypatch.setenv("TRITON_INTERPRET", value)
        with pytest.raises(KernelsUnavailableError, match="for GPUs only"):
            require_kernels(torch.device("cpu"))


class Gpu:
    """A GPU on which the trial kernel runs, or fails as said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
        trial = pytest.importorskip("engine.gpu.kernels.trial")
        self.device = torch.device("cuda", 0)
        self.failure: Exception | None = None
        monkeypatch.setenv("TRITON_INTERPRET", "0")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(trial, "run_trial", self._run)

    def _run(self, device: torch.device) -> None:
        if self.failure is not None:
            raise self.failure


def test_a_gpu_without_a_c_compiler_or_python_s_headers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu(monkeypatch, (9, 0))
    require_kernels(gpu.device)
    for failure in (
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable."),
        subprocess.CalledProcessError(1, ["gcc", "cuda_utils.c", "-lcuda"]),
        AssertionError(),
    ):
        gpu.failure = failure
        with pytest.raises(KernelsUnavailableError, match=r"C compiler .*python3-dev") as caught:
            require_kernels(gpu.device)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("capability", "fits"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_an_8_bit_cache_needs_a_gpu_that_has_8_bit_floats(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], fits: bool
) -> None:
    gpu = Gpu(monkeypatch, capability)
    require_kernels(gpu.device)
    if fits:
        require_kernels(gpu.device, is_cache_fp8=True)
    else:
        with pytest.raises(KernelsUnavailableError, match=r"8\.9, and this GPU has 8\.0"):
            require_kernels(gpu.device, is_cache_fp8=True)


@pytest.mark.parametrize("value", ["1", "true"])
def test_a_gpu_s_kernels_are_not_interpreted(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    gpu = Gpu(monkeypatch, (9, 0))
    monkeypatch.setenv("TRITON_INTERPRET", value)
    with pytest.raises(KernelsUnavailableError, match="unset it"):
        require_kernels(gpu.device)


def test_kernels_know_rotary_models_with_heads_that_fit_into_a_tile(config: ModelConfig) -> None:
    assert config.head_dim == 256
    assert kernels_fit(config)
    assert not kernels_fit(replace(config, head_dim=272))
    assert not kernels_fit(replace(config, learned_positions=True))
    assert kernels_fit(replace(config, ropes=(None, *config.ropes[1:])))
    for other in (
        replace(config, norms=NormPlace.AFTER),
        replace(config, qk_norm=QKNorm.WHOLE),
        replace(config, offset_norms=True),
        replace(config, multipliers=Multipliers(residual=0.5)),
        replace(config, query_scaling=QueryScaling(0.1, 64)),
    ):
        assert not kernels_fit(other)


@pytest.mark.parametrize("can", [True, False])
def test_kernels_start_early_only_if_a_trial_keeps_their_order(
    can: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial = pytest.importorskip("engine.gpu.kernels.trial")
    launch = pytest.importorskip("engine.gpu.kernels.launch")
    chosen: list[bool] = []
    tried: list[torch.device] = []

    def run_chain(device: torch.device) -> None:
        tried.append(device)
        if not can:
            raise RuntimeError("in 3 lines\nkernels that start early overtake those before them")

    monkeypatch.setattr(trial, "run_chain", run_chain)
    monkeypatch.setattr(launch, "set_early_launch", chosen.append)
    monkeypatch.setattr(launch, "early_launch", lambda: {"EARLY": chosen[-1]})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    prepare_early_launch(wanted=False)
    assert (chosen, tried) == ([False], [])
    prepare_early_launch(wanted=True)
    assert tried == [torch.device("cuda", 3)]
    assert chosen[1:] == ([True] if can else [True, False])
    sentence = "kernels are launched one after another, which is slower: kernels that start early"
    assert (sentence in caplog.text) == (not can)
