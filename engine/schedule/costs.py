"""Step times as measured, by the number of prompt tokens: what ``engine.schedule.pacing`` reads.

No formula fits every device: a GPU computes some two hundred rows in the time of one, then each row
costs the same, in stairs as wide as its tiles; on a CPU each row costs the same from the first. So
the times themselves are kept, one for each quarter of an octave of prompt tokens, and never fall as
the tokens grow.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from statistics import median_low

# A step may be slow for unrelated reasons: a time is the median of this many.
_REMEMBERED = 3
# Times of a size that has not been measured for this many steps are replaced, not averaged.
FORGOTTEN_AFTER = 64
_PLACES_PER_OCTAVE = 4


@dataclass(slots=True)
class CostPoint:
    """A step with ``tokens`` prompt tokens takes ``seconds``. ``step``: when that was measured;
    ``is_measured`` False: a smaller step has taken that much since, so this one takes more."""

    tokens: int
    seconds: float
    step: int
    place: int = 0  # in the curve
    is_measured: bool = True
    newest: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class CostCurve:
    """Seconds by prompt tokens, which do not fall. ``step`` counts the observations."""

    def __init__(self) -> None:
        self.step = 0
        self.points: list[CostPoint] = []  # by tokens
        self._places: list[int] = []

    def observe(self, tokens: int, seconds: float) -> None:
        self.step += 1
        place = round(_PLACES_PER_OCTAVE * math.log2(tokens))
        index = bisect_left(self._places, place)
        if index == len(self._places) or self._places[index] != place:
            self._places.insert(index, place)
            self.points.insert(index, CostPoint(tokens, seconds, self.step, place))
        point = self.points[index]
        if self.step - point.step > FORGOTTEN_AFTER:
            point.newest.clear()
        point.newest.append((seconds, tokens))
        point.seconds, point.tokens = median_low(point.newest)
        point.step, point.is_measured = self.step, True
        # What is newer is believed.
        for other in self.points[:index]:
            other.seconds = min(other.seconds, point.seconds)
        for other in self.points[index + 1 :]:
            if other.seconds <= point.seconds:
                other.seconds, other.is_measured = point.seconds, False

    def forget_before(self, step: int) -> None:
        """Forget what was observed before that step, as costs have changed."""
        self.points = [point for point in self.points if point.step >= step]
        self._places = [point.place for point in self.points]
        for point in self.points:
            point.seconds, point.tokens = newest = point.newest[-1]
            point.newest.clear()
            point.newest.append(newest)

    def seconds(self, tokens: float) -> float:
        """Estimate the time of a step: proportional to its tokens below the smallest step that was
        measured, and linear between the measured ones and after them."""
        points = self.points
        if not points:
            return 0.0
        first, last = points[0], points[-1]
        if tokens <= first.tokens or first is last:
            return first.seconds * tokens / first.tokens
        index = min(bisect_left(points, tokens, key=lambda p: p.tokens), len(points) - 1)
        before = points[index - 1]
        return before.seconds + slope(before, points[index]) * (tokens - before.tokens)


def slope(a: CostPoint, b: CostPoint) -> float:
    """Return the seconds per token from ``a`` to ``b``."""
    return (b.seconds - a.seconds) / (b.tokens - a.tokens)
