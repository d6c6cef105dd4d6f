"""What the admin API expects of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from observability.admin_api import (
    KeptRequest,
    RequestPage,
    RequestQuery,
    UsageRow,
)


class ArchiveSource(Protocol):
    """What the store keeps. All raise StoreUnavailableError. ``keeps_requests``: requests that end
    now are stored."""

    @property
    def keeps_requests(self) -> bool: ...

    async def query(self, query: RequestQuery) -> RequestPage: ...

    async def find(self, identity: str) -> KeptRequest | None: ...

    async def export_requests(self, query: RequestQuery, form: str) -> AsyncIterator[bytes]: ...

    async def export_usage(
        self, by: str, start: float, end: float, bucket: str, form: str
    ) -> AsyncIterator[bytes]: ...

    async def usage(self, by: str, start: float, end: float, bucket: str) -> Sequence[UsageRow]: ...
