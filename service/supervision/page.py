"""What a worker knows about its supervisor: whether it is alive, and how often the engine died."""

from __future__ import annotations

import math
import time

from engine.beats import Page, Sign
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS

# Without a beat. A dead supervisor restarts no child and kills none that hangs.
SUPERVISOR_TIMEOUT_SECONDS = 60.0


class Supervision:
    """``page`` is the supervisor's; None: this worker has no supervisor."""

    def __init__(self, page: Page | None) -> None:
        self._page = page

    @property
    def restarts_engines(self) -> bool:
        """True if there is a supervisor, which replaces engines that die or hang."""
        return self._page is not None

    @property
    def problem(self) -> str | None:
        """The reason why requests should not wait for the next engine; None if they may."""
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
        """True if only a restart of the whole server can help. A live supervisor restarts a dead
        engine and kills one that hangs; without a supervisor, a lost engine stays lost."""
        page = self._page
        if page is None:
            return engine_is_lost
        if time.monotonic() - page[Sign.BEATS] > SUPERVISOR_TIMEOUT_SECONDS:
            return True
        return engine_is_lost and page[Sign.FRUITLESS_DEATHS] >= HOPELESS_DEATHS
