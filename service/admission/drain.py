"""Draining: requests in flight finish, and no new one is admitted, because the worker ends or
because an operator started it. Before a worker refuses requests it may announce that it will, so
that proxies send them to other replicas."""

from __future__ import annotations

import asyncio
import contextlib
import time

from observability.logging import get_logger
from service.errors import DrainingError

_log = get_logger()


class Drain:
    """Counts requests in flight; once draining has begun, no new one is admitted. ``announce`` and
    ``begin`` cannot be undone."""

    def __init__(self, timeout: float) -> None:
        self.in_flight = 0
        # Time limits of bodies still arriving; all expire when the drain begins.
        self.uploads: set[asyncio.Timeout] = set()
        self.answered = 0  # requests, in total
        self._timeout = timeout
        self._is_announced = False
        self._ends: float | None = None
        self._is_held = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def draining(self) -> bool:
        """True if the server is not ready for new requests, although it may not refuse them yet."""
        return self._is_announced or self.refuses

    @property
    def refuses(self) -> bool:
        return self._is_held or self.has_begun

    @property
    def has_begun(self) -> bool:
        """True if the worker ends once the requests in flight have, or their time is up."""
        return self._ends is not None

    @property
    def is_held(self) -> bool:
        """True if an operator has drained the server."""
        return self._is_held

    @property
    def is_ending(self) -> bool:
        """True if the worker is shutting down, which cannot be undone."""
        return self._is_announced or self.has_begun

    @property
    def seconds_left(self) -> float:
        """Until the latest end of the drain."""
        return 0.0 if self._ends is None else max(0.0, self._ends - time.monotonic())

    def refusal(self) -> DrainingError:
        """Return the error for a request that arrives while the server drains."""
        if self._ends is None:
            return DrainingError(
                "An operator has drained this server; retry, another replica may answer."
            )
        return DrainingError(
            "The server is shutting down; retry, another replica may answer.",
            # Not the rest of the drain, which clients would wait for: another replica may be idle,
            # and the answer closes the connection, so that the retry can go there.
            retry_after=1,
        )

    async def announce(self, seconds: float, hurry: asyncio.Event) -> None:
        """Be not ready for so long, until ``hurry``, but refuse nothing yet."""
        if seconds > 0:
            self._is_announced = True
            _log.info("not ready any more, but taking requests", seconds=seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), seconds)

    def begin(self) -> None:
        if self._ends is None:
            self._ends = time.monotonic() + self._timeout
            for upload in self.uploads:
                with contextlib.suppress(RuntimeError):  # it has just expired
                    upload.reschedule(0.0)

    def hold(self) -> None:
        """Drain until ``release``."""
        self._is_held = True

    def release(self) -> None:
        """Undo ``hold``."""
        self._is_held = False

    async def wait_idle(self, timeout: float) -> bool:
        """Return True once no request is in flight, False if that takes longer than ``timeout``
        s."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def enter(self) -> None:
        self.in_flight += 1
        self._idle.clear()

    def leave(self) -> None:
        self.in_flight -= 1
        self.answered += 1
        if self.in_flight == 0:
            self._idle.set()
