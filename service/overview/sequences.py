"""What the worker's open sequences say about the load, in one pass."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.messages import Generate
from service.engine.sequence import EngineSequence, SequenceState

# Looked at, in order of arrival: all that run, and the first that wait.
MOST_LOOKED_AT = 4096
MOST_WAITING_LOOKED_AT = 256


@dataclass(slots=True)
class SequenceFigures:
    """``held``: tokens in the KV cache by request id, about. Durations are seconds."""

    prefilling: int = 0
    longest_prefill: float = 0.0
    longest_prefill_tokens: int = 0
    oldest_waiting: float = 0.0
    longest_gap: float = 0.0
    held: Counter[str] = field(default_factory=Counter)


def sequence_figures(
    sequences: Iterable[EngineSequence], now: float, *, running: int
) -> SequenceFigures:
    """``running``: how many of them run."""
    found = SequenceFigures()
    waiting = 0
    for one in itertools.islice(sequences, MOST_LOOKED_AT):
        if one.last_token_time is not None:
            found.longest_gap = max(found.longest_gap, now - one.last_token_time)
        if one.state is not SequenceState.RUNNING:
            waiting += 1
            if waiting > MOST_WAITING_LOOKED_AT and running <= 0:
                break
            found.oldest_waiting = max(found.oldest_waiting, now - one.waiting_since)
            continue
        running -= 1
        message = one.message
        if message is None or not isinstance(message.task, Generate):
            continue
        found.held[message.request_id] += one.prompt_tokens + len(one.generated)
        if one.first_token_time is None and one.first_scheduled_time is not None:
            found.prefilling += 1
            seconds = now - one.first_scheduled_time
            if seconds > found.longest_prefill:
                found.longest_prefill, found.longest_prefill_tokens = seconds, one.prompt_tokens
    return found
