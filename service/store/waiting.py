"""Who waits until a record is in the database."""

from __future__ import annotations

import asyncio

from service.errors import StoreUnavailableError


class WaitingWrites:
    """Any number may wait for the same record."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[None]] = {}

    @property
    def ids(self) -> set[str]:
        return set(self._futures)

    async def written(self, response_id: str, seconds: float) -> None:
        """Return once it is written. Raises StoreUnavailableError, or TimeoutError."""
        future = self._futures.get(response_id)
        if future is None:
            future = self._futures[response_id] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(seconds):
            await asyncio.shield(future)

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
