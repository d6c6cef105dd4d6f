"""What a worker wrote is what the next one finds, wherever the first was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from observability import catalogue, ledger
from observability.layout import LedgerLayout
from observability.ledger import (
    JOURNAL_CELLS,
    ROW_BYTES,
    Past,
    WorkerLedger,
    exemplar_at,
    exemplar_moments,
)
from tests.observability.kills import states_between_lines

METRICS = [catalogue.SEQUENCES_WAITING, catalogue.E2E_SECONDS]


def layout(rows: int = 2) -> LedgerLayout:
    return LedgerLayout(["m"], metrics=METRICS, open_requests=rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "ledger"
    found.touch()
    return found


def opened(path: Path, shape: LedgerLayout | None = None) -> WorkerLedger:
    return WorkerLedger(shape or layout(), os.open(path, os.O_RDWR))


def test_the_next_worker_finds_cells_exemplars_and_texts(path: Path) -> None:
    first = opened(path)
    assert first.past is Past.NOTHING
    first.add(3, 2.5)
    first.add(3, 1)
    first.set(4, -7)
    first.set_exemplar(5, 2**127 + 1, 0.25, 1e9)
    first.write_text(1, 0, b"whole")
    second = opened(path)
    assert second.past is Past.CONTINUED
    assert second.cells[3:5].tolist() == [3.5, -7]
    packed = second.raw_exemplars(4, 3)
    assert exemplar_moments(packed) == [0, 1e9, 0]
    assert exemplar_at(packed, 1) == (2**127 + 1, 0.25, 1e9)
    assert second.read_text(1, 0) == b"whole"


def test_a_ledger_of_another_layout_begins_anew_and_says_so(path: Path) -> None:
    opened(path, layout(rows=3)).set(0, 1)
    found = opened(path)
    assert found.past is Past.UNKNOWN
    assert not any(found.cells)
    assert opened(path).past is Past.CONTINUED


def test_a_worker_killed_while_it_made_the_ledger_has_left_nothing(path: Path) -> None:
    states = states_between_lines(lambda: opened(path), path.read_bytes, ledger)
    assert len(states) > 2
    for state in states:
        path.write_bytes(state)
        found = opened(path)
        assert found.past is not Past.UNKNOWN
        assert not any(found.cells)


def test_a_transaction_happens_as_a_whole_or_not_at_all_wherever_it_is_cut(path: Path) -> None:
    first = opened(path)
    first.set(0, 10)

    def change() -> None:
        with first:
            first.add(0, 1)
            first.add(1, 2)
            first.add(0, 1)
            first.set(2, 3)

    states = states_between_lines(change, path.read_bytes, ledger)
    outcomes = []
    for state in states:
        path.write_bytes(state)
        outcomes.append(tuple(opened(path).cells[:3].tolist()))
    assert set(outcomes) == {(10, 0, 0), (12, 2, 3)}
    assert outcomes == sorted(outcomes)


def test_a_transaction_that_fails_changes_nothing(path: Path) -> None:
    first = opened(path)

    def fail() -> None:
        with first:
            first.add(0, 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with first:
        first.add(1, 1)
    assert opened(path).cells[:2].tolist() == [0, 1]


def test_transactions_do_not_nest() -> None:
    private = WorkerLedger(layout())
    with private, pytest.raises(RuntimeError, match="transaction"), private:
        pass


def test_a_transaction_may_be_larger_than_the_journal() -> None:
    shape = LedgerLayout(["m"], open_requests=2 * JOURNAL_CELLS)
    private = WorkerLedger(shape)
    with private:
        for cell in range(shape.request_cells, shape.cells):
            private.set(cell, cell)
    assert private.cells[shape.cells - 1] == shape.cells - 1


def test_an_exemplar_is_the_old_one_the_new_one_or_none_wherever_a_kill_cuts(path: Path) -> None:
    first = opened(path)
    old, new = (2**127 + 5, 0.5, 1e9), (2**126 + 9, 0.75, 2e9)
    first.set_exemplar(0, *old)
    states = states_between_lines(lambda: first.set_exemplar(0, *new), path.read_bytes, ledger)
    found = set()
    for state in states:
        path.write_bytes(state)
        packed = opened(path).raw_exemplars(0, 1)
        if any(exemplar_moments(packed)):
            found.add(exemplar_at(packed, 0))
    assert found == {old, new}


def test_without_a_supervisor_the_memory_is_private() -> None:
    private = WorkerLedger(layout())
    assert private.past is Past.PRIVATE
    private.add(0, 1)
    assert private.raw(0, 1) == memoryview(private.cells[:1]).tobytes()


def test_a_text_that_does_not_fit_is_refused() -> None:
    private = WorkerLedger(layout())
    private.write_text(0, 1, bytes(ROW_BYTES - 2))
    with pytest.raises(ValueError, match="fit"):
        private.write_text(0, 1, bytes(ROW_BYTES - 1))


def test_memory_that_cannot_be_had_is_an_error_and_not_a_later_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="filled"):
        opened(path)
