"""When a dead child process is started again, and when not any more. Pure policy, no clock."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
MOST_QUICK_DEATHS = 5


@dataclass(slots=True)
class RestartPolicy:
    """Counts deaths in quick succession. One that lived ``HEALTHY_SECONDS`` starts a new count."""

    quick_deaths: int = 0

    def delay_after(self, lived_seconds: float) -> float | None:
        """Seconds to wait before the next start; None: give up."""
        if lived_seconds >= HEALTHY_SECONDS:
            self.quick_deaths = 0
        self.quick_deaths += 1
        if self.quick_deaths >= MOST_QUICK_DEATHS:
            return None
        delay = FIRST_DELAY_SECONDS * 2.0 ** (self.quick_deaths - 1)
        return min(LONGEST_DELAY_SECONDS, delay)
