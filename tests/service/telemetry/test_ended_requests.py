"""Records wait for the database in order; those without room are dropped and counted."""

from __future__ import annotations

from observability.admin_api import KeptRequest
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


def kept(number: int) -> KeptRequest:
    return KeptRequest(request_id=f"req_{number}", received=float(number), route="chat_completions")


def test_records_come_out_in_order_until_they_are_released() -> None:
    one = Counted(4096)
    for number in range(5):
        one.ended.put(kept(number))
    first, position = one.ended.first(3)
    assert first == [kept(0), kept(1), kept(2)]
    assert one.ended.first(1)[0] == [kept(0)]
    one.ended.release(position)
    rest, position = one.ended.first(9)
    assert rest == [kept(3), kept(4)]
    assert 0 < one.ended.fill < 1
    one.ended.release(position, dropped=2)
    assert one.ended.fill == 0
    assert one.dropped == 2


def test_what_has_no_room_is_dropped_and_counted() -> None:
    one = Counted(200)
    for number in range(5):
        one.ended.put(kept(number))
    found, _ = one.ended.first(9)
    assert 0 < len(found) < 5
    assert len(found) + one.dropped == 5


def test_nothing_is_kept_without_a_database() -> None:
    one = Counted(0)
    one.ended.put(kept(1))
    assert not one.ended.is_kept
    assert (one.ended.fill, one.dropped, one.ended.first(1)) == (0.0, 0, ([], 0))


def test_an_entry_that_cannot_be_read_does_not_keep_the_others_back() -> None:
    one = Counted(4096)
    one.ring.put(b"not a record")
    one.ended.put(kept(1))
    found, _ = one.ended.first(9)
    assert found == [kept(1)]
    assert one.dropped == 1
