"""How busy one of several engines is, for the API workers that choose among them."""

from __future__ import annotations

from typing import NamedTuple


class EngineLoad(NamedTuple):
    """``tokens``: of all sequences, waiting and running, that had arrived at ``time`` (monotonic
    seconds)."""

    tokens: int
    time: float
