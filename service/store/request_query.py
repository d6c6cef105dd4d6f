"""A query for ended requests as SQL, a page at a time: each page begins where its cursor says the
last one ended, so that late pages cost no more than the first. Order and cursor are those of
``service.records.ordering``."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Double, Select, Subquery, and_, literal, or_, select

from observability.admin_api import RequestQuery
from observability.outcomes import OUTCOMES, OutcomeGroup
from service.records.matching import UNNAMED
from service.records.ordering import Ordering, Position, QueryError
from service.store.archive_tables import REQUEST_TABLE

# Rows that are sorted by anything but their end: the newest of the requested time.
MOST_SORTED = 100_000
_EQUAL = ("key", "model", "route", "phase")  # what a query may want to be equal
_MAX_TEXT = 256


class ArchiveQueryError(QueryError):
    """A query that the store cannot answer."""


def page_statement(query: RequestQuery) -> Select[Any]:
    """Return the statement for a page and one row more, if there is one: ``request_id``,
    ``trace_id``, ``record`` and the sorted ``value``. Raises ArchiveQueryError."""
    ordering = ordering_of(query)
    columns = REQUEST_TABLE.c if ordering.field == "ended" else _newest(query, ordering).c
    column, row_id = columns[ordering.field], columns.request_id
    conditions = [*_in_time(query, columns), *_conditions(query, columns)]
    if ordering.after is not None:
        conditions.append(_after(ordering.after, column, row_id, ordering))
    # First which rows, from an index that has all that is needed; then only these are read.
    found = (
        select(row_id, columns.ended, column.label("value"))
        .where(*conditions)
        .order_by(*_order(column, row_id, ordering))
        .limit(ordering.limit + 1)
        .subquery()
    )
    whole = REQUEST_TABLE.c
    rows = REQUEST_TABLE.join(
        found, (whole.request_id == found.c.request_id) & (whole.ended == found.c.ended)
    )
    return (
        select(whole.request_id, whole.trace_id, whole.record, found.c.value)
        .select_from(rows)
        .order_by(*_order(found.c.value, found.c.request_id, ordering))
    )


def _may_be_missing(ordering: Ordering) -> bool:
    return bool(REQUEST_TABLE.c[ordering.field].nullable)


def _order(column: Any, row_id: Any, ordering: Ordering) -> list[ColumnElement[Any]]:
    """Return what sorts as ``Position`` does."""
    missing = [column.is_(None)] if _may_be_missing(ordering) else []
    return [*missing, column.desc() if ordering.descending else column.asc(), row_id.asc()]


def _after(after: Position, column: Any, row_id: Any, ordering: Ordering) -> ColumnElement[bool]:
    """Return the condition that a row comes after a position."""
    later_id = row_id > _sound("cursor", after.request_id)
    if after.is_missing:
        return and_(column.is_(None), later_id)
    # As a float, whatever the column has: an integer may be too large for it.
    at: ColumnElement[float] = literal(
        -after.value if ordering.descending else after.value, Double()
    )
    if ordering.descending:
        found = and_(column <= at, or_(column < at, later_id))
    else:
        found = and_(column >= at, or_(column > at, later_id))
    return or_(found, column.is_(None)) if _may_be_missing(ordering) else found


def _newest(query: RequestQuery, ordering: Ordering) -> Subquery:
    """Return the rows among which a query looks that is not in the order of the index: no more
    than can be looked at in a moment."""
    used = {"request_id", "ended", ordering.field, *_filtered(query)}  # others would only be copied
    columns = [column for column in REQUEST_TABLE.columns if column.name in used]
    ended = REQUEST_TABLE.c.ended
    in_time = _in_time(query, REQUEST_TABLE.c)
    return select(*columns).where(*in_time).order_by(ended.desc()).limit(MOST_SORTED).subquery()


def find_statements(request_or_trace_id: str) -> list[Select[Any]]:
    """Return the statements that find a request by its own id and by that of its trace."""
    columns = REQUEST_TABLE.c
    return [
        select(columns.request_id, columns.trace_id, columns.record)
        .where(column == request_or_trace_id)
        .order_by(columns.ended.desc())
        .limit(1)
        for column in (columns.request_id, columns.trace_id)
    ]


def ordering_of(query: RequestQuery) -> Ordering:
    """Raises ArchiveQueryError."""
    try:
        return Ordering.of(query)
    except QueryError as error:
        raise ArchiveQueryError(str(error), error.field) from None


def _in_time(query: RequestQuery, columns: Any) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if query.since is not None:
        found.append(columns.ended >= query.since)
    if query.until is not None:
        found.append(columns.ended < query.until)
    return found


def _filtered(query: RequestQuery) -> set[str]:
    """Return the columns that ``_conditions`` needs."""
    found = {name for name in _EQUAL if getattr(query, name) is not None}
    if query.outcome is not None:
        found.add("outcome")
    if query.min_seconds > 0:
        found.add("total")
    return found


def _conditions(query: RequestQuery, columns: Any) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    for name in _EQUAL:
        wanted = getattr(query, name)
        if wanted is not None:
            found.append(_same(columns[name], name, _sound(name, wanted)))
    if query.outcome is not None:
        group = [
            outcome.name
            for outcome in OUTCOMES
            if query.outcome in (outcome.name, outcome.group.value, outcome.group.name.lower())
        ]
        if not group:
            groups = ", ".join(group.name.lower() for group in OutcomeGroup)
            raise ArchiveQueryError(f"'outcome' must be an outcome or one of {groups}.", "outcome")
        found.append(columns.outcome.in_(group))
    if query.min_seconds > 0:
        found.append(columns.total >= query.min_seconds)
    return found


def _same(column: Any, name: str, wanted: str) -> ColumnElement[bool]:
    """Return the condition that a row is counted under a name. (``other`` is a reserved alias.)"""
    if wanted != UNNAMED.get(name):
        found: ColumnElement[bool] = column == wanted
    elif column.nullable:
        found = column.is_(None)
    else:
        found = column.in_(["", wanted])
    return found


def _sound(name: str, wanted: str) -> str:
    if len(wanted) > _MAX_TEXT or "\0" in wanted:
        raise ArchiveQueryError(
            f"{name!r} may have at most {_MAX_TEXT} characters, and no NUL.", name
        )
    return wanted


def cursor_after(query: RequestQuery, value: float | None, request_id: str) -> str:
    """Return the cursor of the page after the row that has this id and sorted value."""
    ordering = ordering_of(query)
    return ordering.cursor(ordering.key(value, request_id))
