"""Records that wait to be written to the database."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from observability.logging import get_logger
from service.store.record import StoredResponse

_MOST_PENDING = 4096
_MOST_PENDING_BYTES = 256 * 1024 * 1024

_log = get_logger()


class PendingRecords:
    """In order, one for each id; limited in number and size."""

    def __init__(self) -> None:
        self._records: dict[str, StoredResponse] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def ids(self) -> set[str]:
        return set(self._records)

    def get(self, response_id: str) -> StoredResponse | None:
        return self._records.get(response_id)

    def first(self, most: int) -> list[StoredResponse]:
        """Return up to ``most`` records, the oldest first."""
        return list(islice(self._records.values(), most))

    def add(self, record: StoredResponse) -> bool:
        """Append a record in place of any with the same id; False if there is no room."""
        older = self._records.get(record.id)
        count, size = len(self), self._bytes
        if older is not None:
            count, size = count - 1, size - _size_of(older)
        if count >= _MOST_PENDING or size + _size_of(record) > _MOST_PENDING_BYTES:
            return False
        self.drop(record.id)
        self._records[record.id] = record
        self._bytes = size + _size_of(record)
        return True

    def restore(self, records: Iterable[StoredResponse]) -> None:
        """Append those that the database has lost, unless there is a newer one."""
        for record in records:
            if record.id not in self._records and self.add(record):
                _log.warning("storing a response that the database lost", response_id=record.id)

    def drop(self, response_id: str) -> None:
        record = self._records.pop(response_id, None)
        if record is not None:
            self._bytes -= _size_of(record)


def _size_of(record: StoredResponse) -> int:
    parts = record.body, record.input, record.context, record.events or b""
    return sum(map(len, parts))
