"""Errors that end the engine, or a connection to it."""

from __future__ import annotations


class EngineDeadError(RuntimeError):
    """No sequence can run any more; the engine must exit."""


class ProtocolError(ValueError):
    """A connection violated the protocol in a way that cannot be attributed to one sequence."""
