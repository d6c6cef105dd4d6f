"""The ring gives back what was put in, in order, also to the next worker."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from observability import byte_ring, ledger
from observability.byte_ring import ByteRing
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from tests.observability.kills import states_between_lines

LAYOUT = LedgerLayout(["m"], metrics=[], ring_bytes=64)


@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(1, 4))))
def test_it_is_a_queue_of_limited_size(operations: list[bytes | int]) -> None:
    """Bytes are put in; a number of entries is taken out."""
    ring = ByteRing(WorkerLedger(LAYOUT))
    expected: deque[bytes] = deque()
    for operation in operations:
        if isinstance(operation, int):
            entries, position = ring.first(operation)
            assert entries == list(expected)[:operation]
            ring.release(position)
            for _ in entries:
                expected.popleft()
        else:
            fits = sum(4 + len(one) for one in expected) + 4 + len(operation) <= 64
            assert ring.put(operation) == fits
            if fits:
                expected.append(operation)
        assert ring.used_bytes == sum(4 + len(one) for one in expected)


def test_a_killed_worker_leaves_each_entry_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def opened() -> WorkerLedger:
        return WorkerLedger(LAYOUT, os.open(path, os.O_RDWR | os.O_CREAT))

    killed = opened()
    ring = ByteRing(killed)
    ring.put(b"before" * 5)
    ring.release(ring.first(1)[1])  # so that the next one goes over the end

    def put_in_a_transaction() -> None:
        with killed:
            ring.put(b"after" * 8)

    states = states_between_lines(
        put_in_a_transaction, lambda: bytes(killed.memory), byte_ring, ledger
    )
    assert len(states) > 4
    found = []
    for state in states:
        path.write_bytes(state)
        found.append(ByteRing(opened()).first(9)[0])
    assert all(entries in ([], [b"after" * 8]) for entries in found)
    assert found[0] == []
    assert found[-1] == [b"after" * 8]


def test_a_ring_without_room_takes_nothing() -> None:
    ring = ByteRing(WorkerLedger(LedgerLayout(["m"], metrics=[])))
    assert ring.size_bytes == 0
    assert not ring.put(b"")
