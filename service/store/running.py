"""Which responses this process works on, whose leases it renews."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from service.store.record import RUNNING, StoredResponse

if TYPE_CHECKING:
    from service.store.database import Database

LEASE_SECONDS = 60  # renewed with every sweep
# How long the database keeps the trace of a response that was deleted in progress.
TRACE_SECONDS = 600


class RunningResponses:
    """From when a response's first record is saved until its end is stored, or it is deleted."""

    def __init__(self) -> None:
        self._records: dict[str, StoredResponse] = {}  # as they began
        self._begun: set[str] = set()  # those that have been written
        self._leased_until = 0.0

    @property
    def holds_leases(self) -> bool:
        """True if other replicas still take them to be in progress."""
        return time.monotonic() < self._leased_until

    def leased(self, since: float) -> None:
        """All leases were renewed after ``since``, by the monotonic clock."""
        self._leased_until = since + LEASE_SECONDS

    @property
    def ids(self) -> set[str]:
        return set(self._records)

    def get(self, response_id: str) -> StoredResponse | None:
        return self._records.get(response_id)

    def begin(self, record: StoredResponse) -> None:
        self._records[record.id] = record

    def end(self, response_id: str) -> None:
        self._records.pop(response_id, None)
        self._begun.discard(response_id)

    def written(self, records: Iterable[StoredResponse]) -> None:
        """Note what the database has now."""
        for record in records:
            if record.status not in RUNNING:
                self.end(record.id)
            elif record.id in self._records:
                self._begun.add(record.id)

    async def missing(self, database: Database) -> tuple[set[str], list[StoredResponse]]:
        """Return those that another replica has deleted, which have ended, and the records that the
        database has lost, as after a failover to an older copy: they must be written again."""
        begun = set(self._begun)
        if not begun:
            return set(), []
        missing = await database.missing(begun)
        deleted = missing.deleted & self._begun
        for response_id in deleted:
            self.end(response_id)
        return deleted, [self._records[each] for each in sorted(missing.lost & self._begun)]
