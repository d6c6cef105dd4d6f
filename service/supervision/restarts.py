"""Decides when to restart a dead child process. Pure policy, no clock.

A child is always restarted. The delay depends on whether it made progress before it died: an engine
killed by each of many requests is restarted at once each time; one that loads for a minute and dies
as soon as it is ready is not.
"""

from __future__ import annotations

from dataclasses import dataclass

DELAY_AFTER_PROGRESS_SECONDS = 0.1
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
# A child that was ready this long counts as having made progress: it may have been idle.
HEALTHY_SECONDS = 60.0
# After this many deaths in a row without progress, requests no longer wait for the next start.
FAILING_DEATHS = 5
# After this many (about two minutes later, plus loading times) liveness fails: only an orchestrator
# that starts the whole container elsewhere can still help.
HOPELESS_DEATHS = 10


@dataclass(slots=True)
class RestartPolicy:
    """Counts deaths in a row without progress."""

    fruitless_deaths: int = 0

    def delay_after(self, *, progress: bool) -> float:
        """Return the seconds to wait before the next start."""
        if progress:
            self.fruitless_deaths = 0
            return DELAY_AFTER_PROGRESS_SECONDS
        self.fruitless_deaths += 1
        # The exponent is bounded: 2.0 ** 1024 overflows.
        doublings = min(self.fruitless_deaths - 1, 16)
        return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**doublings)
