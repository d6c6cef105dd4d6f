"""What replicas report to each other about limits, through the database of the stored responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from service.store.lazily import Lazily
from service.store.place import StorePlace
from service.tenants.limit_ledger import MinuteUse

if TYPE_CHECKING:
    from service.store.limit_database import LimitDatabase


class LimitStore:
    """``place``: a PostgreSQL database, which other replicas may use too."""

    def __init__(self, place: StorePlace) -> None:
        self._database: Lazily[LimitDatabase] = Lazily(
            lambda: _load(place), "database of the limits"
        )

    async def exchange(self, replica: str, used: Mapping[str, MinuteUse]) -> dict[str, MinuteUse]:
        """Store what this replica's tenants use; return what those of all others do. Raises
        StoreUnavailableError."""
        async with self._database.asked() as database:
            return await database.exchange(replica, used)

    async def close(self) -> None:
        await self._database.close()


def _load(place: StorePlace) -> LimitDatabase:
    from service.store.limit_database import LimitDatabase

    return LimitDatabase(place)
