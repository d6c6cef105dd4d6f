"""Usage is counted exactly once, by hour and group, whatever happens to workers and database."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from observability import ledger, usage_table
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup, UsageTable
from tests.observability.kills import states_between_lines

KEYS, MODELS, ROUTES = ("a", "b", "other"), ("m", "other"), ("chat", "none")
ROWS = 6
LAYOUT = LedgerLayout(["m"], metrics=[], usage_rows=ROWS)
A = UsageGroup("a", "m", "chat")
B = UsageGroup("b", "other", "none")
groups = st.builds(
    UsageGroup, st.sampled_from(KEYS), st.sampled_from(MODELS), st.sampled_from(ROUTES)
)


def table(descriptor: int | None = None) -> UsageTable:
    return UsageTable(WorkerLedger(LAYOUT, descriptor), KEYS, MODELS, ROUTES)


def count(table: UsageTable, hour: float, group: UsageGroup, **figures: float) -> None:
    with table._ledger:
        table.count(hour * 3600, group, UsageFigures(**figures))


def seen(rows: list[HourlyUsage]) -> dict[tuple[int, UsageGroup], UsageFigures]:
    return {(one.hour, one.group): one.figures for one in rows}


def test_figures_add_up_by_hour_and_group() -> None:
    usage = table()
    count(usage, 100, A, output_tokens=5, seconds=0.5)
    count(usage, 100.9, A, output_tokens=2, errors=1)
    count(usage, 101, B, requests=3)
    assert seen(usage.rows()) == {
        (100, A): UsageFigures(2, 1, 0, 0, 7, 0, 0.5),
        (101, B): UsageFigures(3),
    }


def test_names_that_are_not_known_are_the_last_ones() -> None:
    usage = table()
    count(usage, 100, UsageGroup("stranger", "unknown", "nowhere"))
    assert list(seen(usage.rows())) == [(100, UsageGroup("other", "other", "none"))]


def test_keys_that_come_later_are_counted_by_name() -> None:
    layout = LedgerLayout(["m"], metrics=[], usage_rows=ROWS, key_names=1)
    usage = UsageTable(WorkerLedger(layout), KEYS, MODELS, ROUTES)
    for key in ("new", "another", "a"):
        count(usage, 100, UsageGroup(key, "m", "chat"))
    assert {one.group.key for one in usage.rows()} == {"new", "other", "a"}


def test_a_clock_that_is_set_back_by_an_hour_adds_to_the_newest_hour() -> None:
    usage = table()
    count(usage, 100, A)
    with capture_logs() as lines:
        count(usage, 99, A)
    assert seen(usage.rows()) == {(100, A): UsageFigures(2)}
    assert lines == []


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([96, 98, 99, 100, 101, 200]), groups, st.booleans()), max_size=30
    ),
    next_workers=st.booleans(),
)
def test_nothing_is_lost_or_counted_twice_however_the_clock_is_set(
    steps: list[tuple[int, UsageGroup, bool]], next_workers: bool
) -> None:
    """With the database's rule: for each hour, group and epoch, the larger figure is stored."""
    memory = os.memfd_create("ledger")
    usage = table(os.dup(memory))
    stored: Counter[tuple[int, UsageGroup, int]] = Counter()

    def store() -> list[HourlyUsage]:
        rows = usage.rows()
        for one in rows:
            tag = one.hour, one.group, one.epoch
            stored[tag] = max(stored[tag], int(one.figures.requests))
        return rows

    for hour, group, is_stored in steps:
        count(usage, hour, group)
        assert 0 <= int(usage._ledger.cells[usage._hour_cell]) - hour <= 1
        if is_stored:
            usage.release(store())
            if next_workers:
                usage = table(os.dup(memory))
    store()
    os.close(memory)
    assert stored.total() == len(steps)


def test_after_a_step_back_usage_counts_in_the_hour_that_it_is_and_adds_up() -> None:
    usage = table()
    count(usage, 100, A, output_tokens=5)
    count(usage, 340, A, output_tokens=1)
    released = usage.rows()
    usage.release(released)  # of hour 100; the database has it
    with capture_logs() as lines:
        count(usage, 100, A, output_tokens=2)
        count(usage, 100, A, output_tokens=2)
    assert [line["hours"] for line in lines] == [240]
    rows = usage.rows()
    assert seen(rows) == {
        (340, A): UsageFigures(1, output_tokens=1),
        (100, A): UsageFigures(2, output_tokens=4),
    }
    assert {one.epoch for one in rows if one.hour == 100}.isdisjoint(
        one.epoch for one in released if one.hour == 100
    )
    usage.release(rows)  # the hour to come takes no room, either
    assert [one.hour for one in usage.rows()] == [100]


def test_only_rows_of_past_hours_that_did_not_change_are_released() -> None:
    usage = table()
    count(usage, 100, A)
    count(usage, 100, B)
    count(usage, 101, A)
    rows = usage.rows()
    usage._ledger.add(usage._cell(rows[1].row) + 2, 1)  # as a request that is counted late
    usage.release(rows)
    assert seen(usage.rows()) == {(100, B): UsageFigures(2), (101, A): UsageFigures(1)}
    count(usage, 101, B, output_tokens=4)
    assert seen(usage.rows())[(101, B)] == UsageFigures(1, output_tokens=4)


def test_a_key_is_never_charged_for_what_another_used() -> None:
    layout = LedgerLayout(["m"], metrics=[], usage_rows=ROWS, key_names=20)
    usage = UsageTable(WorkerLedger(layout), KEYS, MODELS, ROUTES)
    for key in range(10):
        count(usage, 100, UsageGroup(f"key{key}", "m", "chat"), output_tokens=1)
    count(usage, 101, UsageGroup("key0", "other", "none"))
    found = Counter[str]()
    for one in usage.rows():
        found[one.group.key] += int(one.figures.requests)
    assert found == {"key0": 2, "key1": 1, "key2": 1, "key3": 1, "key4": 1, "other": 5}
    assert usage.overflowed == 5


def test_names_beyond_those_that_can_be_learned_are_counted_as_overflow() -> None:
    usage = table()
    count(usage, 100, UsageGroup("stranger", "m", "chat"))
    count(usage, 100, UsageGroup("other", "m", "chat"))
    assert usage.overflowed == 1


Stored = dict[tuple[int, int, UsageGroup], float]


def store(usage: UsageTable, stored: Stored) -> list[HourlyUsage]:
    """Keep the larger figures, as the database does. Return the rows."""
    rows = usage.rows()
    for one in rows:
        place = (one.hour, one.epoch, one.group)
        assert one.figures.requests >= stored.get(place, 0)
        stored[place] = one.figures.requests
    return rows


def test_more_keys_than_rows_are_counted_while_the_database_stores_them(tmp_path: Path) -> None:
    layout = LedgerLayout(["m"], metrics=[], usage_rows=ROWS, key_names=20)
    path = tmp_path / "ledger"
    stored: Stored = {}
    for _ in range(2):  # the next worker does not have what the first one has set aside
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        usage = UsageTable(WorkerLedger(layout, descriptor), KEYS, MODELS, ROUTES)
        for number in range(66):
            count(usage, 100, UsageGroup(f"key{number % 11}", "m", "chat"))
            if usage.is_crowded:
                usage.release(store(usage, stored))
        assert usage.overflowed == 0
    store(usage, stored)
    found = Counter[str]()
    for (_, _, group), requests in stored.items():
        found[group.key] += int(requests)
    assert found == {f"key{number}": 12 for number in range(11)}


@given(st.lists(st.tuples(st.integers(0, 8), groups), max_size=60))
def test_without_a_database_no_request_and_no_key_is_lost(
    requests: list[tuple[int, UsageGroup]],
) -> None:
    usage = table()
    for hour, group in sorted(requests, key=lambda one: one[0]):
        count(usage, 100 + hour, group)
    found: Counter[str] = Counter()
    for one in usage.rows():
        found[one.group.key] += int(one.figures.requests)
    assert found.total() == len(requests)
    if len({key for _, (key, _, _) in requests}) == 1:
        assert set(found) == {requests[0][1].key}


def test_the_next_worker_continues(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def next_worker() -> UsageTable:
        return table(os.open(path, os.O_RDWR | os.O_CREAT))

    first = next_worker()
    count(first, 100, A, output_tokens=5)
    second = next_worker()
    assert second.boot_id == first.boot_id > 0
    assert table().boot_id != first.boot_id
    count(second, 100, A, output_tokens=1)
    count(second, 101, B)
    expected = {(100, A): UsageFigures(2, output_tokens=6), (101, B): UsageFigures(1)}
    assert seen(next_worker().rows()) == expected


def test_a_kill_at_any_line_leaves_a_request_counted_wholly_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ledger"

    def next_worker() -> UsageTable:
        return table(os.open(path, os.O_RDWR | os.O_CREAT))

    killed = next_worker()
    count(killed, 100, A)
    states = states_between_lines(
        lambda: count(killed, 101, B, output_tokens=3, seconds=0.25),
        lambda: bytes(killed._ledger.memory),
        usage_table,
        ledger,
    )
    assert len(states) > 4
    before = {(100, A): UsageFigures(1)}
    after = before | {(101, B): UsageFigures(1, output_tokens=3, seconds=0.25)}
    for state in states:
        path.write_bytes(state)
        assert seen(next_worker().rows()) in (before, after)


def test_too_many_names_are_refused() -> None:
    names = [str(number) for number in range(40_000)]
    with pytest.raises(ValueError, match="too many"):
        UsageTable(WorkerLedger(LAYOUT), names, names, ROUTES)
