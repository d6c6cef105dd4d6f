"""The part of the engine's messages that concerns its waiting queue.

Imports nothing from the engine: the service uses it without loading torch.
"""

from __future__ import annotations

import enum


class ServiceClass(enum.StrEnum):
    """How urgent a sequence is, the most urgent first; ``engine.schedule.waiting`` says what each
    class gets."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"
