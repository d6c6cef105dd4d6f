"""What ends the engine, or a connection to it."""

from __future__ import annotations


class EngineDeadError(RuntimeError):
    """No sequence can run any more; the engine must exit."""


class ProtocolError(ValueError):
    """A connection broke the protocol in a way that cannot be pinned on one sequence."""
