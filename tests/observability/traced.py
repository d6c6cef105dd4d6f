"""Traces that callers begin, and finished spans."""

from __future__ import annotations

import os

from observability import schema
from observability.tracing import FinishedSpan, Tracer, make_tracer

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
NOT_SAMPLED = f"00-{TRACE}-{CALLER}-00"


def finished(name: str = "chat m", error: str | None = None) -> FinishedSpan:
    return FinishedSpan(
        schema.SPAN_REQUEST,
        name,
        1_000_000_000,
        3_000_000_000,
        {
            schema.ATTR_REQUEST_MODEL: "m",
            schema.ATTR_OUTPUT_TOKENS: 7,
            schema.ATTR_STREAM: True,
            schema.ATTR_TOP_P: 0.5,
            schema.ATTR_FINISH_REASONS: ("stop", "length"),
            schema.ATTR_RESPONSE_ID: None,
        },
        error,
    )


def tracer() -> Tracer:
    return make_tracer(os.environ, version="1.2.3")
