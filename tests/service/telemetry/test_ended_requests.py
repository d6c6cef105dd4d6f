"""Records wait for the database in order; those without room are dropped and counted."""

from __future__ import annotations

from observability.byte_ring import ByteRing
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from service.telemetry.ended_requests import EndedRequests


class Counted:
    def __init__(self, ring_bytes: int) -> None:
        self.dropped = 0
        layout = LedgerLayout(["m"], metrics=[], ring_bytes=ring_bytes)
        self.ring = ByteRing(WorkerLedger(layout))
        self.ended = EndedRequests(self.ring, self._drop)

    def _drop(self) -> None:
        self.dropped += 1


class Record:
    def __init__(self, number: int) -> None:
        self.number = number

    def encode(self) -> bytes:
        return b"record %d of a request" % self.number


def encoded(*numbers: int) -> list[bytes]:
    return [Record(number).encode() for number in numbers]


def test_records_come_out_in_order_until_they_are_released() -> None:
    one = Counted(4096)
    for number in range(5):
        one.ended.put(Record(number))
    first, position = one.ended.first(3)
    assert first == encoded(0, 1, 2)
    assert one.ended.first(1)[0] == encoded(0)
    one.ended.release(position)
    assert one.ended.count == 2
    rest, position = one.ended.first(9)
    assert rest == encoded(3, 4)
    assert 0 < one.ended.fill < 1
    one.ended.release(position, dropped=2)
    assert one.ended.fill == 0
    assert one.dropped == 2


def test_what_has_no_room_is_dropped_and_counted() -> None:
    one = Counted(100)
    for number in range(5):
        one.ended.put(Record(number))
    found, _ = one.ended.first(9)
    assert 0 < len(found) < 5
    assert len(found) + one.dropped == 5


def test_nothing_is_kept_without_a_database() -> None:
    one = Counted(0)
    one.ended.put(Record(1))
    assert not one.ended.is_kept
    assert (one.ended.fill, one.dropped, one.ended.first(1)) == (0.0, 0, ([], 0))
