"""Keeps the verdict steady: a state machine around the pure ``diagnose``.

What the engine's and the server's state say is shown at once, and so is the end of idleness. What
the load says is shown once it has held for ``HOLD_SECONDS``, and such changes are at least
``FLIP_SECONDS`` apart. The end of idleness or of a state does not count as a change, so that the
first cause after it is not held back.
"""

from __future__ import annotations

from observability.admin_api import Condition

FLIP_SECONDS = 10.0
HOLD_SECONDS = 3.0

AT_ONCE = frozenset(
    {
        *(Condition.DOWN, Condition.SILENT, Condition.LOADING, Condition.DRAINING),
        *(Condition.ENGINES, Condition.CONNECTIONS),
    }
)


class SteadyCondition:
    """Call ``observe`` about once a second. Times are monotonic seconds."""

    def __init__(self, condition: Condition = Condition.LOADING, now: float = 0.0) -> None:
        self.shown = condition
        self.since = now  # when ``shown`` began
        self._candidate = condition
        self._candidate_since = now
        self._changed = now - FLIP_SECONDS

    def observe(self, found: Condition, now: float) -> Condition:
        """Return the condition to show. ``found``: what ``diagnose`` says now."""
        if found is not self._candidate:
            self._candidate, self._candidate_since = found, now
        if found is self.shown:
            return self.shown
        if found in AT_ONCE or self.shown in AT_ONCE:
            self._show(found, now, begin=now)
        elif now - self._candidate_since >= HOLD_SECONDS and now - self._changed >= FLIP_SECONDS:
            self._show(found, now, begin=self._candidate_since)
        elif self.shown is Condition.IDLE:
            self._show(Condition.HEALTHY, now, begin=now)
        return self.shown

    def _show(self, condition: Condition, now: float, *, begin: float) -> None:
        if condition not in AT_ONCE and self.shown not in AT_ONCE | {Condition.IDLE}:
            self._changed = now
        self.shown, self.since = condition, begin
