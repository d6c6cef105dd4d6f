"""How long sequences have waited for an engine to run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.queueing import ServiceClass
from service.engine.sequence import EngineSequence, SequenceState

_WAITING = (SequenceState.UNSENT, SequenceState.QUEUED)


class ClassWait(NamedTuple):
    """``waiting``: sequences of a class; ``oldest``: how long the oldest has waited, in seconds."""

    waiting: int = 0
    oldest: float = 0.0


def waits(sequences: Iterable[EngineSequence], now: float) -> dict[ServiceClass, ClassWait]:
    """Return the waits of each class at ``now`` (monotonic seconds)."""
    waiting = dict.fromkeys(ServiceClass, 0)
    oldest = dict.fromkeys(ServiceClass, 0.0)
    for one in sequences:
        if one.state in _WAITING:
            message = one.message
            kind = ServiceClass.STANDARD if message is None else message.service_class
            waiting[kind] += 1
            oldest[kind] = max(oldest[kind], now - one.waiting_since)
    return {kind: ClassWait(waiting[kind], oldest[kind]) for kind in ServiceClass}
