"""How many of the requests that end are refused, and mostly why."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from observability.outcomes import OUTCOMES, OutcomeGroup

_REFUSED = tuple(one.name for one in OUTCOMES if one.group is OutcomeGroup.REFUSED)


class Refused(NamedTuple):
    """``rate``: requests per second, and ``share`` of all that ended; ``outcome``: the most common
    one."""

    rate: float = 0.0
    share: float = 0.0
    outcome: str = ""


class Refusals:
    """Call ``look`` once a second; times are monotonic seconds. The figures are of the last
    ``seconds``."""

    def __init__(self, seconds: int) -> None:
        self._looks: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=seconds + 1)

    def look(self, now: float, ended: Mapping[str, float]) -> Refused:
        """``ended``: the number of requests since the start, by outcome."""
        self._looks.append((now, ended))
        begin, before = self._looks[0]
        grown = {name: ended[name] - before.get(name, 0.0) for name in ended}
        counts = {name: grown[name] for name in _REFUSED}
        refused = sum(counts.values())
        if refused <= 0 or now <= begin:
            return Refused()
        return Refused(
            refused / (now - begin),
            refused / sum(grown.values()),
            max(counts, key=lambda name: counts[name]),
        )
