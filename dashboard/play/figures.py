"""What an answer cost, in words. Times and rates are the server's own."""

from __future__ import annotations

import json
import time

import msgspec

from dashboard.answer import Answer, Ending, Timings
from dashboard.words import duration, number, percent


def progress(answer: Answer, read: float | None = None) -> str:
    """The line below an answer that grows: how long one has waited, then what the server has
    measured and counted so far. ``read``: how much of the prompt the server has read, 0 to 1."""
    if not answer.chunks:
        if read:
            return f"Reading the prompt, {percent(read)}"
        return f"Waiting for the first token, {duration(time.monotonic() - answer.sent, 2)}"
    parts = _measured(answer)
    if answer.usage is not None:
        parts.append(f"{answer.usage.completion_tokens:,} output tokens so far")
    return " · ".join(parts) or "Answering"


def cost(answer: Answer) -> str:
    """The line below an answer that has ended."""
    parts, usage = _measured(answer), answer.usage
    if usage is not None:
        cached = usage.cached_tokens
        kept = f" ({cached:,} cached)" if cached is not None else ""
        parts.append(f"{usage.prompt_tokens:,} prompt tokens{kept}")
        if answer.result is None:
            parts.append(f"{usage.completion_tokens:,} output tokens")
    elif answer.ending is not None:
        parts.append(f"{answer.chunks:,} chunks received")
    if answer.ending is Ending.STOPPED:
        parts.append("stopped early")
    elif answer.finish_reason is not None:
        parts.append(f"finish: {answer.finish_reason}")
    return " · ".join(parts)


def _measured(answer: Answer) -> list[str]:
    timings = answer.timings or Timings()
    parts = [
        f"{name} {duration(milliseconds / 1000)}"
        for name, milliseconds in (
            ("queue", timings.queue_ms),
            ("prefill", timings.prefill_ms),
            ("first token", timings.time_to_first_token_ms),
        )
        if milliseconds is not None
    ]
    if timings.output_tokens_per_second is not None:
        parts.append(f"{number(timings.output_tokens_per_second)} tok/s")
    return parts


def reasoned(answer: Answer) -> str:
    """The heading over reasoning that has ended."""
    if answer.thought_ms is None:
        return "Reasoning"
    return f"Reasoned for {duration(answer.thought_ms / 1000)}"


def record(answer: Answer) -> str:
    """All that the server says of the request, in its own digits."""
    ids = {"request_id": answer.request_id, "trace_id": answer.trace_id}
    told = {} if answer.timings is None else msgspec.structs.asdict(answer.timings)
    known = {name: value for name, value in (ids | told).items() if value not in ("", None)}
    return json.dumps(known, indent=2)
