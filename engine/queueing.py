"""The part of the engine's messages that concerns its queue and what leaves it.

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


class Prefilled(NamedTuple):
    """A step computed several tokens of a sequence: of its prompt, or again after a preemption."""

    handle: int
    tokens: int


class Moved(NamedTuple):
    """A sequence left the running ones at ``time``, or came back to them."""

    handle: int
    time: float
