"""Which of several engines a request goes to.

To the one with the lowest cost, which is its load in tokens, less ``WORTH`` times the tokens of the
prompt that are in its prefix cache. So of two engines the one with the longer cached prefix is
chosen, unless its load exceeds the other's by more than ``WORTH`` tokens for each token that need
not be computed there. Equal costs: the engine with less load, then the one that was chosen longest
ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORTH = 2.0


class Candidate(NamedTuple):
    """An engine. ``load``: the tokens of all its sequences; ``cached``: tokens of the prompt in its
    prefix cache; ``chosen``: when it was last chosen, in any unit."""

    number: int
    load: int
    cached: int
    chosen: int


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the engine for a request. Raises ValueError if there is none."""
    return min(candidates, key=_order)


def _order(one: Candidate) -> tuple[float, int, int]:
    return one.load - WORTH * one.cached, one.load, one.chosen
