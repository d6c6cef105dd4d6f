"""When a dead child process is started again. Pure policy, no clock.

It is always started again. What counts is whether the life that ended got anything done: an engine
that is killed by each of many requests restarts at once each time; one that loads for a minute and
dies as soon as it is ready does not.
"""

from __future__ import annotations

from dataclasses import dataclass

DELAY_AFTER_PROGRESS_SECONDS = 0.1
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
# Ready for so long, a child counts as having got something done: it may have had nothing to do.
HEALTHY_SECONDS = 60.0
# From so many fruitless deaths in a row on, nobody is asked to wait for the next start.
FAILING_DEATHS = 5
# And from so many on (some two minutes later, plus what loading takes), liveness fails: an
# orchestrator that can start the whole container elsewhere has the only remedy left.
HOPELESS_DEATHS = 10


@dataclass(slots=True)
class RestartPolicy:
    """Counts deaths without progress, one after another."""

    fruitless_deaths: int = 0

    def delay_after(self, *, progress: bool) -> float:
        """Seconds to wait before the next start."""
        if progress:
            self.fruitless_deaths = 0
            return DELAY_AFTER_PROGRESS_SECONDS
        self.fruitless_deaths += 1
        # The exponent is bounded: 2.0 ** 1024 is no float.
        doublings = min(self.fruitless_deaths - 1, 16)
        return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0**doublings)
