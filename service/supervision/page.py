"""What a worker knows of its supervisor: whether it lives, and how it fares with the engine."""

from __future__ import annotations

import math
import time

from engine.beats import Page, Sign
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS

# Without a beat: nobody would start what dies, nor kill what hangs.
SUPERVISOR_TIMEOUT_SECONDS = 60.0


class Supervision:
    """``page`` is the supervisor's; None: nobody supervises this worker."""

    def __init__(self, page: Page | None) -> None:
        self._page = page

    @property
    def problem(self) -> str | None:
        """Why nobody should wait for the next engine; None if there is no reason."""
        page = self._page
        if page is None or page[Sign.FRUITLESS_DEATHS] < FAILING_DEATHS:
            return None
        problem = (
            f"the engine died {page[Sign.FRUITLESS_DEATHS]:.0f} times in a row without progress; "
            "see the log"
        )
        seconds = math.ceil(page[Sign.NEXT_START_AT] - time.monotonic())
        return f"{problem}; next start in {seconds} s" if seconds > 0 else problem

    def is_hopeless(self, *, engine_is_lost: bool) -> bool:
        """Whether only a restart of everything can help. A supervisor that lives starts what died
        and kills what hangs; without one, a lost engine stays lost."""
        page = self._page
        if page is None:
            return engine_is_lost
        if time.monotonic() - page[Sign.BEATS] > SUPERVISOR_TIMEOUT_SECONDS:
            return True
        return engine_is_lost and page[Sign.FRUITLESS_DEATHS] >= HOPELESS_DEATHS
