"""A runner is assembled around a model: its cache fits its memory, its limits are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.cpu.library import LibraryUnavailableError, library
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


def test_where_graphs_cannot_be_recorded_steps_are_launched_kernel_by_kernel(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("triton")

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors")

    monkeypatch.setattr("engine.run.steady.graph_replays", fail)
    runner = load_runner(model, gpu_path="triton", num_kv_blocks=8, max_num_seqs=2)
    assert runner._steady is runner._mixed is None
    [record] = [each for each in caplog.records if "CUDA graphs" in each.getMessage()]
    assert record.getMessage() == (
        "steps are launched kernel by kernel, which is slower: CUDA graphs cannot be recorded here "
        "(operation not permitted when stream is capturing)"
    )
    assert record.exc_info is None


def test_of_several_ranks_none_continues_without_graphs_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("engine.run.steady.graph_replays", fail)
    monkeypatch.setattr("engine.run.setup.RunnerSetup.ranks", 2)
    with pytest.raises(ModelError, match=r"is capturing\); --no-cuda-graphs computes without them"):
        load_runner(model, gpu_path="triton", num_kv_blocks=8, max_num_seqs=2)


@pytest.mark.parametrize("gpu_path", ["auto", "triton"])
def test_where_a_kernel_does_not_compile_torch_computes_if_it_may(
    gpu_path: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip("triton")
    from triton.runtime.errors import OutOfResources

    def fail(*arguments: object, **options: object) -> None:
        raise OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setattr("engine.gpu.llama.norm_rope_store", fail)
    monkeypatch.setattr("engine.run.assembly.has_kernels", lambda setup: True)
    if gpu_path == "triton":
        with pytest.raises(OutOfResources):
            load_runner(model, gpu_path=gpu_path, num_kv_blocks=8)
        return
    runner = load_runner(model, gpu_path=gpu_path, cpu_path="torch", num_kv_blocks=8)
    assert type(runner._decoder).__name__ == "LlamaModel"
    [record] = [each for each in caplog.records if "by torch alone" in each.getMessage()]
    assert "out of resource: shared memory" in record.getMessage()
    assert record.exc_info is None


def test_a_token_takes_half_the_memory_where_products_round_to_8_bits(model: Path) -> None:
    def block_bytes(**settings: str) -> float:
        config = EngineConfig(model=str(model), device="cpu", threads=1, **settings)
        info = load_model_runner(config, lambda *call: None).info
        return info.kv_cache_bytes / info.num_kv_blocks

    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    whole = block_bytes(dtype="float32")
    assert block_bytes(quantization="int8") * 2 == whole
    assert block_bytes(quantization="int8", cpu_path="torch") == whole
    assert block_bytes(dtype="bfloat16") * 2 == whole
