"""The part of the engine's messages that concerns its queue.

Imports nothing from the engine: the service uses it without loading torch.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class ServiceClass(enum.StrEnum):
    """How urgent a sequence is, the most urgent first; ``engine.schedule.waiting`` says what each
    class gets."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class EngineLoad(NamedTuple):
    """How busy one of several engines is. ``tokens``: of all sequences, waiting and running, that
    had arrived at ``time`` (monotonic seconds)."""

    tokens: int
    time: float
