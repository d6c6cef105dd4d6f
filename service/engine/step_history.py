"""What the engine's last steps say about each sequence that took part in them: the longest steps of
its life, its longest gap between tokens, which gaps are unusually long.

All sequences that run get a token in every step, so nearly everything is the same for all of them
and is noted once for each step, not for each token. Only a sequence that was left out of a step
has another gap (see ``service.engine.open_sequences``).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from operator import itemgetter

from observability.admin_api import Prefill
from service.engine.happenings import LongStep

LONG_GAP_MEDIANS = 5.0
LONGEST_STEPS = 3
# The running median of gaps is that of the last so many, computed again every so many steps.
_MEDIAN_OF = 128
_MEDIAN_EVERY = 16
# Steps that are added before those that can no longer be among the longest are forgotten.
_ADDED_AT_ONCE = 24
_MOST_KEPT = 4096

_Step = tuple[float, float, int, int, tuple[Prefill, ...]]
_time, _seconds = itemgetter(0), itemgetter(1)


class StepHistory:
    """``token_time``: of the last step with tokens; -1 before the first. ``long_gap``: seconds
    beyond which a gap is unusually long; infinite until there were enough.

    Questions are always about the time from some moment up to now, so that a step is forgotten once
    three later ones were longer, and a gap once a later one was longer."""

    def __init__(self) -> None:
        self.token_time = -1.0
        self.long_gap = float("inf")
        self._steps: list[_Step] = []
        self._room = _ADDED_AT_ONCE
        self._gap_times: list[float] = []  # when they ended; the longest gap comes first
        self._gaps: list[float] = []
        self._last_gaps = [0.0] * _MEDIAN_OF
        self._num_gaps = 0

    def add_step(
        self,
        time: float,
        seconds: float,
        tokens: int,
        sequences: int,
        prefills: tuple[Prefill, ...] = (),
    ) -> None:
        self._steps.append((time, seconds, tokens, sequences, prefills))
        if len(self._steps) > self._room:
            self._forget_steps()

    def add_tokens(self, time: float, *, after_others: bool) -> None:
        """Note a step with tokens. ``after_others``: some of its sequences had tokens in the step
        with tokens before it too, so that the time between is a gap that readers see."""
        gap, self.token_time = time - self.token_time, time
        if not after_others:
            return
        gaps, times = self._gaps, self._gap_times
        while gaps and gaps[-1] <= gap:
            gaps.pop()
            times.pop()
        gaps.append(gap)
        times.append(time)
        number = self._num_gaps
        self._last_gaps[number % _MEDIAN_OF] = gap
        self._num_gaps = number = number + 1
        if number % _MEDIAN_EVERY == 0:
            self._renew_median()

    def _renew_median(self) -> None:
        last = sorted(self._last_gaps[: self._num_gaps])
        self.long_gap = LONG_GAP_MEDIANS * last[len(last) // 2]
        del self._gaps[:-_MOST_KEPT], self._gap_times[:-_MOST_KEPT]

    def longest_steps(self, begin: float) -> list[LongStep]:
        """Return the longest steps that ended after ``begin``, the longest first."""
        steps = self._steps
        life = steps[bisect_right(steps, begin, key=_time) :]
        life.sort(key=_seconds, reverse=True)
        return [LongStep(*step) for step in life[:LONGEST_STEPS]]

    def longest_gap(self, begin: float) -> float:
        """Return the longest gap so far of a sequence that had its first token at ``begin`` and was
        never left out of a step; 0 if it has none."""
        place = bisect_right(self._gap_times, begin)
        return self._gaps[place] if place < len(self._gaps) else 0.0

    def _forget_steps(self) -> None:
        later: list[float] = []  # a heap of the longest
        kept = []
        for step in reversed(self._steps):
            if len(later) < LONGEST_STEPS:
                heapq.heappush(later, step[1])
            elif step[1] > later[0]:
                heapq.heapreplace(later, step[1])
            else:
                continue
            kept.append(step)
        kept.reverse()
        self._steps = kept[-_MOST_KEPT:]
        self._room = len(self._steps) + max(_ADDED_AT_ONCE, len(self._steps) // 4)
