"""Pending records keep their order and their limits."""

from __future__ import annotations

import msgspec
import pytest

from service.store.pending import PendingRecords
from tests.service.store.stored import record


def test_a_newer_record_takes_the_place_of_the_older_at_the_end() -> None:
    pending = PendingRecords()
    newer = record("resp_a", text="newer")
    for each in (record("resp_a"), record("resp_b"), newer):
        assert pending.add(each)
    assert pending.get("resp_a") is newer
    assert [each.id for each in pending.first(2)] == ["resp_b", "resp_a"]
    assert [each.id for each in pending.first(1)] == ["resp_b"]
    assert pending.ids == {"resp_a", "resp_b"}
    pending.drop("resp_b")
    pending.drop("resp_b")
    assert len(pending) == 1
    assert pending.get("resp_b") is None


def test_what_was_lost_is_added_unless_there_is_a_newer_one() -> None:
    pending = PendingRecords()
    newer = record("resp_a", text="newer")
    assert pending.add(newer)
    lost = record("resp_b")
    pending.restore([record("resp_a"), lost])
    assert pending.first(3) == [newer, lost]


@pytest.mark.parametrize(("limit", "most"), [("_MOST_PENDING", 2), ("_MOST_PENDING_BYTES", 5000)])
def test_what_is_dropped_makes_room(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(f"service.store.pending.{limit}", most)
    pending = PendingRecords()
    assert pending.add(record("resp_a", text="a" * 2000))
    assert pending.add(record("resp_b", text="b" * 2000))
    assert not pending.add(record("resp_c", text="c" * 2000))
    assert pending.get("resp_c") is None
    pending.drop("resp_a")
    assert pending.add(record("resp_c", text="c" * 2000))


@pytest.mark.parametrize(("limit", "most"), [("_MOST_PENDING", 2), ("_MOST_PENDING_BYTES", 5000)])
def test_a_full_memory_still_takes_the_newer_state_of_a_record(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(f"service.store.pending.{limit}", most)
    pending = PendingRecords()
    for name in ("resp_a", "resp_b"):
        assert pending.add(record(name, text="a" * 2000))
    newer = record("resp_a", text="b" * 2000)
    assert pending.add(newer)
    assert pending.get("resp_a") is newer
    assert not pending.add(record("resp_c", text="c" * 2000))


@pytest.mark.parametrize("part", ["input", "context", "events"])
def test_every_part_of_a_record_takes_room(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr("service.store.pending._MOST_PENDING_BYTES", 5000)
    pending = PendingRecords()
    assert not pending.add(msgspec.structs.replace(record("resp_a"), **{part: bytes(5000)}))
    assert len(pending) == 0
