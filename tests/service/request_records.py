"""Records of requests as the routes leave them."""

from __future__ import annotations

import time
from typing import Any

from engine.messages import Finished, FinishReason
from service.telemetry.record import Flush, Interval, RequestRecord
from service.telemetry.requests import Telemetry


def sequence(**changes: Any) -> Finished:
    """Queued for 4 ms, prefilled in 30, then a token each 5 ms."""
    start = changes.pop("start", 1000.0)
    values: dict[str, Any] = {
        "handle": 1,
        "reason": FinishReason.STOP,
        "prompt_tokens": 20,
        "cached_tokens": 16,
        "output_tokens": 11,
        "preemptions": 0,
        "arrival_time": start,
        "queued_time": start + 0.006,
        "first_scheduled_time": start + 0.010,
        "first_token_time": start + 0.040,
        "last_token_time": start + 0.090,
        "finished_time": start + 0.091,
    }
    return Finished(**{**values, **changes})


def started(telemetry: Telemetry, **changes: Any) -> RequestRecord:
    """A request that the server received just now."""
    values: dict[str, Any] = {
        "request_id": "req_1",
        "route": "chat_completions",
        "http_method": "POST",
        "http_route": "/v1/chat/completions",
        "received_time": time.monotonic(),
        "received_wall_ns": time.time_ns(),
    }
    record = RequestRecord(**{**values, **changes})
    telemetry.request_started(record)
    return record


def answered(telemetry: Telemetry, **changes: Any) -> RequestRecord:
    """A streamed answer, complete; ``request_finished`` is yet to be called. Each phase has a
    different length."""
    values: dict[str, Any] = {
        "received_time": 1000.0,
        "received_wall_ns": 5_000_000_000,
        "model": "m",
        "operation": "chat",
        "response_id": "chatcmpl-1",
        "stream": True,
        "max_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "status": 200,
        "outcome": "stop",
        "finish_reasons": ["stop"],
        "prompt_tokens": 20,
        "cached_tokens": 16,
        "output_tokens": 11,
        "intervals": [
            Interval("receive", 1000.0, 1000.001),
            Interval("render", 1000.002, 1000.0025),
            Interval("tokenize", 1000.0025, 1000.005),
        ],
        "prepared_time": 1000.0055,
        "flush": Flush(0.005, 1000.060, 1000.093),
        "first_token_time": 1000.041,
        "last_token_time": 1000.090,
        "ended_time": 1000.100,
        "sequences": [sequence()],
    }
    return started(telemetry, **{**values, **changes})
