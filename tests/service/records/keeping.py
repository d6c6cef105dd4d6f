"""Kept requests and rows, made up."""

from __future__ import annotations

from typing import Any

from observability.admin_api import KeptRequest
from service.records.row import Row, row_of


def kept(number: int = 1, **changes: Any) -> KeptRequest:
    values: dict[str, Any] = {
        "request_id": f"req_{number:032x}",
        "trace_id": f"{number:032x}",
        "received": 100.0 + number,
        "ended": 101.0 + number,
        "route": "chat_completions",
        "model": "m",
        "outcome": "stop",
        "total": 1.0,
        "phases": {"queue": 0.2, "decode": 0.8},
    }
    return KeptRequest(**{**values, **changes})


def row(number: int = 1, **changes: Any) -> Row:
    return row_of(kept(number, **changes))
