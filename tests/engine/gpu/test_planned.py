"""flashinfer is given what it documents, and asked only where it helps. The package itself, which
needs a GPU, is replaced by its documentation in float64."""

from __future__ import annotations

import importlib.util
import inspect
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu.paged import Piece, Scores, Shape, attention, make_batch
from engine.architecture.errors import ModelError
from engine.gpu.attention import TRITON
from engine.gpu.availability import KernelsUnavailableError
from engine.gpu.planned import PlannedAttention, require_flashinfer
from engine.messages import SamplingParams
from tests.engine.driving import Engine, load_runner
from tests.engine.gpu.flashinfer_double import Recorded, Wrapper
from tests.engine.gpu.kernels.attending import assert_close
from tests.engine.gpu.test_attention import OF_HEADS, projections, ragged
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

CPU = torch.device("cpu")
SHAPE = Shape()


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    monkeypatch.setitem(sys.modules, "flashinfer", cast(ModuleType, recorded.module()))
    return recorded


def small(device: torch.device = CPU, fewest: int = 4) -> PlannedAttention:
    return PlannedAttention(
        *(SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim, SHAPE.block_size),
        dtype=torch.float32,
        device=device,
        fewest=fewest,
    )


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(20), Piece(9), Piece(30, 7), Piece(16, 5), Piece(3, 3), Piece(9, 9)],
        [Piece(24, 8)],
    ],
    ids=["mixed", "one chunk"],
)
def test_any_mix_of_lone_rows_and_chunks_equals_float64(
    device: torch.device, flashinfer: Recorded, pieces: list[Piece], window: int | None
) -> None:
    batch = make_batch(pieces, SHAPE, device=device)
    batch = replace(batch, blocks=batch.blocks.nan_to_num(0.0))
    kernels = replace(TRITON, planned=small(device))
    tables = replace(
        ragged(batch, pieces),
        contexts=tuple(piece.length for piece in pieces if piece.count > 1),
    )
    found = kernels.attend(
        projections(batch, pieces),
        batch.blocks,
        kernels.plan(tables, window=window, **OF_HEADS),
        num_heads=SHAPE.heads,
        scale=0.3,
        window=window,
        scales=None,
    )
    assert_close(found, attention(batch, pieces, Scores(window=window)))
    assert flashinfer.runs == 1


def test_a_plan_is_not_written_over_the_last_step_s(flashinfer: Recorded) -> None:
    kernels = replace(TRITON, planned=small())
    pieces = [Piece(9, 9)]
    tables = replace(ragged(make_batch(pieces, SHAPE, device=CPU), pieces), contexts=(9,))
    for _ in range(4):
        for window in (None, 5):
            kernels.plan(tables, window=window, **OF_HEADS)
    by = flashinfer.planned_by
    assert len(flashinfer.wrappers) == 4
    assert all(by[i] not in by[i - 2 : i] for i in range(2, len(by)))
    assert by[:4] == by[4:]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "sms"),
    [(32, 8, 128, 132), (64, 8, 128, 132), (64, 8, 128, 148), (64, 4, 128, 108), (16, 8, 256, 132)],
)
def test_the_workspace_holds_all_parts_of_the_largest_plan(
    monkeypatch: pytest.MonkeyPatch, heads: int, kv_heads: int, head_dim: int, sms: int
) -> None:
    properties = SimpleNamespace(multi_processor_count=sms)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    attention = PlannedAttention(
        heads, kv_heads, head_dim, 64, torch.bfloat16, torch.device("cuda", 0)
    )
    # ``PrefillPlan`` in flashinfer's scheduler.cuh, with tiles of 128 rows of queries.
    padded_batch_size = 2 * sms // kv_heads
    values = heads * padded_batch_size * 128 * head_dim * 4
    sums = heads * padded_batch_size * 128 * 4
    assert attention.workspace_bytes >= max(values + sums, 128 << 20)


def test_short_parts_of_prompts_are_left_to_the_recorded_steps(flashinfer: Recorded) -> None:
    kernels = replace(TRITON, planned=small(fewest=10))
    assert kernels.fewest_unrecorded == 10
    assert TRITON.fewest_unrecorded is None
    pieces = [Piece(30, 5), Piece(9, 4)]
    tables = ragged(make_batch(pieces, SHAPE, device=CPU), pieces)
    assert kernels.plan(tables, window=None, **OF_HEADS).run is None
    assert flashinfer.plans == []


def test_an_engine_with_flashinfer_gives_the_tokens_of_transformers(
    tmp_path: Path, flashinfer: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = Variant(
        "qwen2",
        {
            "num_hidden_layers": 2,
            "use_sliding_window": True,
            "sliding_window": 13,
            "max_window_layers": 1,
        },
    )
    oracle = save_model(variant, tmp_path)
    monkeypatch.setattr("engine.run.setup.require_flashinfer", lambda attention, windows: None)
    monkeypatch.setattr(
        "engine.run.setup.PlannedAttention",
        lambda *arguments: PlannedAttention(*arguments, fewest=9),
    )
    engine = Engine(
        tmp_path,
        gpu_path="triton",
        attention="flashinfer",
        block_size=8,
        num_kv_blocks=40,
        max_num_batched_tokens=27,
        async_scheduling=True,
    )
    prompts = [random.Random(n).choices(range(VOCABULARY), k=n) for n in (33, 9, 1, 12)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=3, temperature=0.0))
    for prompt, output in zip(prompts, outputs, strict=True):
        tokens = prompt + output.token_ids
        with torch.inference_mode():
            best = oracle(torch.tensor([tokens])).logits[0].argmax(dim=-1)
        assert output.token_ids == best[len(prompt) - 1 : -1].tolist()
    assert {plan["left"] for plan in flashinfer.plans} == {-1, 12}
    assert all(plan["rows"][-1] >= 9 for plan in flashinfer.plans)
    assert flashinfer.runs == len(flashinfer.plans) > 0  # two layers, two windows


def test_where_flashinfer_is_missing_or_cannot_attend_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flashinfer: Recorded
) -> None:
    save_model(VARIANTS["qwen3"], tmp_path)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, real=importlib.util.find_spec: None if name == "flashinfer" else real(name),
    )
    with pytest.raises(ModelError, match="--attention flashinfer: flashinfer is not installed"):
        load_runner(tmp_path, gpu_path="triton", attention="flashinfer", num_kv_blocks=9)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())

    def reason(**changes: object) -> str:
        whole = replace(small(), dtype=torch.bfloat16, head_dim=128)
        with pytest.raises(KernelsUnavailableError) as raised:
            require_flashinfer(replace(whole, **changes), {None})
        return str(raised.value)

    gpu = torch.device("cuda", 0)
    assert reason() == "flashinfer needs an NVIDIA GPU"
    assert "16 bits, and the model is in float32" in reason(device=gpu, dtype=torch.float32)
    assert "heads of 64, 128, 256, and this model's have 80" in reason(device=gpu, head_dim=80)

    def broken(attention: PlannedAttention, windows: set[int | None]) -> None:
        raise RuntimeError("Ninja is required to load C++ extensions\nand so on")

    monkeypatch.setattr(PlannedAttention, "prepare", broken)
    assert reason(device=gpu) == (
        "flashinfer cannot attend here (Ninja is required to load C++ extensions)"
    )


def test_a_trial_attends_with_each_window(flashinfer: Recorded) -> None:
    small().prepare({None, 7})
    assert sorted(plan["left"] for plan in flashinfer.plans) == [-1, 6]
    assert flashinfer.runs == 2


def test_the_double_has_flashinfer_s_parameters() -> None:
    """Where the package is installed."""
    flashinfer = pytest.importorskip("flashinfer")
    real = flashinfer.BatchPrefillWithPagedKVCacheWrapper
    for name in ("plan", "run"):
        own = inspect.signature(getattr(Wrapper, name)).parameters
        assert set(own) <= set(inspect.signature(getattr(real, name)).parameters)
