"""A database whose libraries are loaded in a thread, on first use, because that takes long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from service.errors import StoreUnavailableError
from service.store.driver_error import error_kind


class _Closable(Protocol):
    FAILURES: tuple[type[Exception], ...]

    async def close(self) -> None: ...


D = TypeVar("D", bound=_Closable)


class Lazily(Generic[D]):
    """``load`` makes the database, in a thread. ``what`` names it in errors."""

    def __init__(self, load: Callable[[], D], what: str) -> None:
        self._load = load
        self._what = what
        self._database: D | None = None
        self._loading = asyncio.Lock()

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[D]:
        """Provide the database. Raises StoreUnavailableError for its failures within the block."""
        async with self._loading:
            if self._database is None:
                self._database = await asyncio.to_thread(self._load)
        database = self._database
        try:
            yield database
        except database.FAILURES as error:
            # What the driver says may show values.
            raise StoreUnavailableError(
                f"The {self._what} does not respond ({error_kind(error)}); retry."
            ) from error

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()
