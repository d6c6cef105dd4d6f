"""The rows of open requests that the next worker finds."""

from __future__ import annotations

import os
from pathlib import Path

from observability import ledger, open_requests
from observability.layout import LedgerLayout
from observability.ledger import WorkerLedger
from observability.open_requests import MAX_TEXT_BYTES, OpenRequests
from tests.observability.kills import states_between_lines


def table(path: Path, rows: int = 2) -> tuple[WorkerLedger, OpenRequests]:
    layout = LedgerLayout(["m"], metrics=[], open_requests=rows)
    found = WorkerLedger(layout, os.open(path, os.O_RDWR | os.O_CREAT))
    return found, OpenRequests(found)


def test_the_next_worker_finds_what_is_open_and_how_it_was_last_described(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    _, before = table(path, rows=3)
    rows = [before.insert(text) for text in (b"a", b"b", b"c")]
    assert None not in rows
    assert before.insert(b"d") is None
    before.update(rows[1], b"b, with more")  # type: ignore[arg-type]
    before.remove(rows[0])  # type: ignore[arg-type]
    _, after = table(path, rows=3)
    assert dict(after) == {rows[1]: b"b, with more", rows[2]: b"c"}
    assert after.insert(b"e") == rows[0]
    assert after.insert(b"f") is None


def test_a_text_that_is_too_long_is_not_taken(tmp_path: Path) -> None:
    _, subject = table(tmp_path / "ledger")
    assert subject.insert(bytes(MAX_TEXT_BYTES + 1)) is None
    row = subject.insert(b"short")
    assert row is not None
    subject.update(row, bytes(MAX_TEXT_BYTES + 1))
    assert dict(subject) == {row: b"short"}


def test_wherever_a_kill_cuts_a_row_has_the_old_text_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    _, subject = table(path)
    row = subject.insert(b"old" * 50)
    assert row is not None
    subject.update(row, b"second")

    def update() -> None:
        subject.update(row, b"new" * 100)

    states = states_between_lines(update, path.read_bytes, ledger, open_requests)
    assert len(states) == 3
    found = []
    for state in states:
        path.write_bytes(state)
        _, after = table(path)
        found.append(dict(after)[row])
    assert found == [b"second", b"second", b"new" * 100]


def test_within_a_transaction_a_row_changes_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    found, subject = table(path)
    with found:
        row = subject.insert(b"a")
        assert dict(table(path)[1]) == {}
    assert dict(table(path)[1]) == {row: b"a"}
