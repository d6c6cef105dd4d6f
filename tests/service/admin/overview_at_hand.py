"""An overview with nothing to see, for tests that change a part of it."""

from __future__ import annotations

from typing import Any

from observability.admin_api import Condition, Overview, Verdict, Window


def overview(**changes: Any) -> Overview:
    values: dict[str, Any] = {
        "time": 0.0,
        "server": "test:8000",
        "version": "0",
        "model": "tiny",
        "models": ("tiny",),
        "state": "ok",
        "verdict": Verdict(Condition.HEALTHY, "All is well."),
        "uptime": 1.0,
        "running": 0,
        "max_running": 8,
        "waiting": 0,
        "max_waiting": 100,
        "waiting_by_reason": {},
        "oldest_waiting": 0.0,
        "predicted_wait": None,
        "silence": 0.0,
        "longest_gap": 0.0,
        "kv_blocks_active": 0,
        "kv_blocks_cached": 0,
        "kv_blocks_free": 8,
        "block_size": 16,
        "minute": Window(seconds=60.0),
        "five_minutes": Window(seconds=300.0),
        "slo": {"ttft": 1.0, "itl": 0.1},
        "parts": {},
    }
    return Overview(**{**values, **changes})
