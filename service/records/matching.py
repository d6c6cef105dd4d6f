"""Which requests a query selects."""

from __future__ import annotations

from collections.abc import Callable

from observability.admin_api import RequestQuery
from observability.catalogue import OTHER_KEY, OTHER_MODEL
from observability.outcomes import OUTCOMES, OutcomeGroup, group_of
from service.records.row import Row

# The names under which usage counts requests without one; the same names find them.
UNNAMED = {"key": OTHER_KEY, "model": OTHER_MODEL}


def outcomes_named(asked: str) -> frozenset[str]:
    """Return the outcomes that the name of an outcome or of a group selects."""
    names = {group.name.lower(): group for group in OutcomeGroup}
    group = names.get(asked)
    if group is None:
        return frozenset({asked})
    return frozenset(one.name for one in OUTCOMES if group_of(one.name) is group)


def matcher(query: RequestQuery) -> Callable[[Row], bool]:
    """Return a function that is true for the rows that the query selects, live or ended."""
    same = {
        name: value
        for name in ("key", "model", "route", "phase")
        if (value := getattr(query, name)) is not None
    }
    outcomes = None if query.outcome is None else outcomes_named(query.outcome)
    since, until = (None, None) if query.live else (query.since, query.until)
    least = query.min_seconds

    def matches(row: Row) -> bool:
        if row.total < least:
            return False
        if since is not None and (row.ended is None or row.ended < since):
            return False
        if until is not None and (row.ended is None or row.ended >= until):
            return False
        if outcomes is not None and row.outcome not in outcomes:
            return False
        return all((getattr(row, name) or UNNAMED.get(name)) == one for name, one in same.items())

    return matches
