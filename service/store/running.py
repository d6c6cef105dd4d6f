"""Which responses this process works on, whose leases it renews."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from service.store.record import RUNNING, StoredResponse

if TYPE_CHECKING:
    from service.store.database import Database

LEASE_SECONDS = 60  # renewed with every sweep
# How long the database keeps the trace of a response that was deleted in progress.
TRACE_KEPT_SECONDS = 600


class Missing(NamedTuple):
    """``deleted``: by a client, through any replica. ``lost``: by the database."""

    deleted: set[str]
    lost: set[str]


class RunningResponses:
    """From when a response's first record is saved until its end is stored, or it is deleted."""

    def __init__(self) -> None:
        self._records: dict[str, StoredResponse] = {}  # as they began
        self._begun: set[str] = set()  # those that have been written
        self._leased_until = 0.0
        self._checked = time.monotonic()  # whether any was deleted

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

    @property
    def _finds_traces(self) -> bool:
        """False if the trace of a response that was deleted since the last check may be gone."""
        return time.monotonic() < self._checked + TRACE_KEPT_SECONDS

    def to_write(self, records: Sequence[StoredResponse]) -> Sequence[StoredResponse]:
        """Return what the database may store of these without restoring a deleted response."""
        if self._finds_traces:
            return records
        return [
            msgspec.structs.replace(record, must_exist=True)
            if record.is_update or record.id in self._begun
            else record
            for record in records
        ]

    async def missing(self, database: Database) -> tuple[set[str], list[StoredResponse]]:
        """Return those that another replica has deleted, which have ended, and the records that the
        database has lost, as after a failover to an older copy: they must be written again. If the
        database was away for longer than it keeps traces, all of these may have been deleted."""
        began = time.monotonic()
        begun = set(self._begun)
        missing = await database.missing(begun) if begun else Missing(set(), set())
        deleted, lost = missing.deleted & self._begun, missing.lost & self._begun
        if not self._finds_traces:
            deleted, lost = deleted | lost, set()
        self._checked = began
        for response_id in deleted:
            self.end(response_id)
        return deleted, [self._records[each] for each in sorted(lost)]
