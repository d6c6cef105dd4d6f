"""The columns of the history."""

from __future__ import annotations

from observability.history import ENDED_COLUMNS, HISTORY
from observability.outcomes import OutcomeGroup


def test_each_column_is_declared_once() -> None:
    names = [column.name for column in HISTORY]
    assert len(set(names)) == len(names)


def test_each_group_of_outcomes_has_a_column() -> None:
    assert set(ENDED_COLUMNS) == set(OutcomeGroup)
    assert set(ENDED_COLUMNS.values()) <= {column.name for column in HISTORY}
