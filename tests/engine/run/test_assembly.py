"""A runner is assembled around a model: its cache fits its memory, its limits are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.run.assembly import KVCacheTooSmallError, load_model_runner
from tests.engine.driving import load_runner
from tests.engine.tiny_models import MAX_POSITIONS, VARIANTS, VOCABULARY, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def test_info_describes_the_loaded_model(model: Path) -> None:
    info = load_runner(model, max_num_seqs=3, block_size=32).info
    assert info.architecture == "Qwen3ForCausalLM"
    assert (info.dtype, info.device) == ("float32", "cpu")
    assert info.vocab_size == VOCABULARY
    assert info.max_model_len == MAX_POSITIONS
    assert info.num_kv_blocks == 3 * MAX_POSITIONS // 32
    assert info.kv_cache_bytes == info.num_kv_blocks * 32 * 3 * 2 * (2 * 32) * 4


def test_progress_passes_through_every_phase_in_order(model: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    config = EngineConfig(model=str(model), threads=1, device="cpu")
    load_model_runner(config, lambda *call: calls.append(call))
    phases = list(dict.fromkeys(phase for phase, _, _ in calls))
    assert phases == ["config", "weights", "kv_cache", "warmup"]
    for phase in phases:
        done, total = [(d, t) for p, d, t in calls if p == phase][-1]
        assert done == total


def test_the_cache_keeps_within_its_memory(model: Path) -> None:
    info = load_runner(model, kv_cache_memory=1 << 20, max_num_seqs=256).info
    assert 0.65 * (1 << 20) < info.kv_cache_bytes <= 0.75 * (1 << 20)  # the rest is the mirror's


def test_a_default_length_is_reduced_to_fit_the_memory(model: Path) -> None:
    info = load_runner(model, num_kv_blocks=5, block_size=16).info
    assert info.max_model_len == 80


def test_a_requested_length_must_fit(model: Path) -> None:
    with pytest.raises(KVCacheTooSmallError, match="lower --max-model-len"):
        load_runner(model, num_kv_blocks=5, block_size=16, max_model_len=81)
