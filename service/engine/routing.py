"""Which of several engines a request goes to.

The engine with the longest cached prefix of its prompt, unless that engine is too busy: compared
with the least loaded engine, its load may be greater by ``SHARE``, and by ``WORTH`` tokens for each
token of the prompt that only the longer prefix saves. With equal prefixes, or none, it is the
engine with less load, then the one that was chosen longest ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WORTH = 2.0
SHARE = 0.5


class Candidate(NamedTuple):
    """An engine. ``load``: the tokens of all its sequences; ``cached``: tokens of the prompt in its
    prefix cache; ``chosen``: when it was last chosen, in any unit."""

    number: int
    load: int
    cached: int
    chosen: int


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the engine for a request. Raises ValueError if there is none."""
    least = min(candidates, key=_by_load)
    fit = [one for one in candidates if one.load <= bound(one, least)]
    return min(fit, key=_by_prefix)


def bound(one: Candidate, least: Candidate) -> float:
    """Return the greatest load with which an engine may be chosen."""
    return (1 + SHARE) * least.load + WORTH * max(0, one.cached - least.cached)


def _by_load(one: Candidate) -> tuple[int, int, int]:
    return one.load, -one.cached, one.chosen


def _by_prefix(one: Candidate) -> tuple[int, int, int]:
    return -one.cached, one.load, one.chosen
