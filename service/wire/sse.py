"""The ends of OpenAI's streams."""

from __future__ import annotations

from typing import Final

from service.errors import QuireError

DONE: Final = b"data: [DONE]\n\n"


def error_event(error: QuireError) -> bytes:
    """SDKs raise on an ``error`` object; no ``[DONE]`` follows, so it is not mistaken for
    success."""
    return b"data: " + error.to_body() + b"\n\n"
