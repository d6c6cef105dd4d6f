"""Who waits until a record is in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service.errors import StoreUnavailableError
from service.store.condition import TOO_SLOW


class WaitingWrites:
    """Any number may wait for the same record. ``on_slow`` is called when one waited too long."""

    def __init__(self, on_slow: Callable[[], None] = lambda: None) -> None:
        self._on_slow = on_slow
        self._futures: dict[str, asyncio.Future[None]] = {}

    @property
    def ids(self) -> set[str]:
        return set(self._futures)

    async def written(self, response_id: str, seconds: float) -> None:
        """Return once it is written. Raises StoreUnavailableError; if it takes longer than this, to
        all, since those that came later would wait as long."""
        future = self._futures.get(response_id)
        if future is None:
            future = self._futures[response_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(future)
        except TimeoutError:
            self._on_slow()
            self.fail(TOO_SLOW)
            raise StoreUnavailableError(TOO_SLOW) from None

    def note(self, response_id: str, error: StoreUnavailableError | None = None) -> None:
        """Wake those who wait for this record: it is written, or failed with ``error``."""
        future = self._futures.pop(response_id, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            future.exception()  # avoids logging the error if those who waited have left

    def fail(self, reason: str) -> None:
        """Wake all."""
        for response_id in list(self._futures):
            self.note(response_id, StoreUnavailableError(reason))
