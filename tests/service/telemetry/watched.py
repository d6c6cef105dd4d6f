"""Messages of an engine, and the metrics that come of them."""

from __future__ import annotations

import struct
from typing import Any

from engine.messages import EngineStats, Ready, StepOutputs, StepPhase
from observability.metric_kinds import Metric
from service.telemetry.requests import Telemetry

MODEL = {"model": "m"}


def value(telemetry: Telemetry, metric: Metric, suffix: str = "", **labels: str) -> float:
    telemetry.exposition(None)
    found = telemetry.metrics.sample(metric, {**MODEL, **labels}, suffix)
    assert found is not None, (metric.name, suffix, labels)
    return found


def stats(**changes: Any) -> EngineStats:
    return EngineStats(**{"kv_blocks_free": 100, **changes})


def step(moment: float, handles: list[int], **changes: Any) -> StepOutputs:
    values: dict[str, Any] = {
        "time": moment,
        "handles": struct.pack(f"<{len(handles)}q", *handles),
        "token_ids": struct.pack(f"<{len(handles)}i", *range(len(handles))),
        "phase": StepPhase.DECODE,
        "step_seconds": 0.004,
        "step_tokens": len(handles),
        "step_sequences": len(handles),
        "stats": stats(),
    }
    return StepOutputs(**{**values, **changes})


READY = Ready(
    model="/models/m",
    architecture="Qwen3ForCausalLM",
    dtype="float32",
    device="cpu",
    num_parameters=1,
    vocab_size=10,
    max_model_len=512,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    block_size=16,
    num_kv_blocks=100,
    kv_cache_bytes=1,
    load_seconds=1.5,
)
