"""A query for ended requests as SQL, a page at a time: each page begins where its cursor says the
last one ended, so that late pages cost no more than the first."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, Subquery, select, tuple_

from observability.admin_api import MAX_PAGE, SORTABLE, RequestQuery
from observability.outcomes import OUTCOMES, OutcomeGroup
from service.store.archive_tables import REQUEST_TABLE

# Rows that are sorted by anything but their end: the newest of the requested time.
MOST_SORTED = 100_000
_EQUAL = ("key", "model", "route", "phase")  # what a query may want to be equal
_MAX_TEXT = 256


class ArchiveQueryError(ValueError):
    """A query that cannot be answered. The message says what is allowed."""


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Of the last row of a page."""

    sort: str
    value: float
    request_id: str


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Cursor)


def page_statement(query: RequestQuery) -> Select[Any]:
    """Return the statement for a page and one row more, if there is one: ``request_id``,
    ``trace_id``, ``record`` and the sorted ``value``. Raises ArchiveQueryError."""
    name, descending = sort_of(query)
    columns = REQUEST_TABLE.c if name == "ended" else _newest(query).c
    column, row_id = columns[name], columns.request_id
    conditions = [*_in_time(query, columns), *_conditions(query, columns)]
    if REQUEST_TABLE.c[name].nullable:
        conditions.append(column.is_not(None))
    if query.cursor is not None:
        place = tuple_(column, row_id)
        last = _cursor(query)
        at = tuple_(last.value, last.request_id)
        conditions.append(place < at if descending else place > at)
    order = (column.desc(), row_id.desc()) if descending else (column.asc(), row_id.asc())
    # First which rows, from an index that has all that is needed; then only these are read.
    found = (
        select(row_id, columns.ended, column.label("value"))
        .where(*conditions)
        .order_by(*order)
        .limit(limit_of(query) + 1)
        .subquery()
    )
    whole = REQUEST_TABLE.c
    rows = REQUEST_TABLE.join(
        found, (whole.request_id == found.c.request_id) & (whole.ended == found.c.ended)
    )
    value, last_id = found.c.value, found.c.request_id
    outer = (value.desc(), last_id.desc()) if descending else (value.asc(), last_id.asc())
    return (
        select(whole.request_id, whole.trace_id, whole.record, value)
        .select_from(rows)
        .order_by(*outer)
    )


def _newest(query: RequestQuery) -> Subquery:
    """Return the rows among which a query looks that is not in the order of the index: no more
    than can be looked at in a moment."""
    name, _ = sort_of(query)
    used = {"request_id", "ended", name, *_filtered(query)}  # others would only be copied
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


def sort_of(query: RequestQuery) -> tuple[str, bool]:
    """Return the column, and whether it descends."""
    name = query.sort.removeprefix("-")
    if name not in SORTABLE:
        raise ArchiveQueryError(f"'sort' must be one of {', '.join(SORTABLE)}, or -NAME.")
    return name, query.sort.startswith("-")


def limit_of(query: RequestQuery) -> int:
    if not 1 <= query.limit <= MAX_PAGE:
        raise ArchiveQueryError(f"'limit' must be 1 to {MAX_PAGE}.")
    return query.limit


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
            found.append(columns[name] == _sound(name, wanted))
    if query.outcome is not None:
        group = [
            outcome.name
            for outcome in OUTCOMES
            if query.outcome in (outcome.name, outcome.group.value, outcome.group.name.lower())
        ]
        if not group:
            groups = ", ".join(group.name.lower() for group in OutcomeGroup)
            raise ArchiveQueryError(f"'outcome' must be an outcome or one of {groups}.")
        found.append(columns.outcome.in_(group))
    if query.min_seconds > 0:
        found.append(columns.total >= query.min_seconds)
    return found


def _sound(name: str, wanted: str) -> str:
    if len(wanted) > _MAX_TEXT or "\0" in wanted:
        raise ArchiveQueryError(f"{name!r} may have at most {_MAX_TEXT} characters, and no NUL.")
    return wanted


def cursor_after(query: RequestQuery, value: float, request_id: str) -> str:
    """Return the cursor of the page after the row that has this id and sorted value."""
    packed = _encoder.encode(_Cursor(query.sort, value, request_id))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _cursor(query: RequestQuery) -> _Cursor:
    text = query.cursor or ""
    try:
        padded = text + "=" * (-len(text) % 4)
        found = _decoder.decode(base64.b64decode(padded, altchars="-_", validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError):
        found = None
    if found is None or found.sort != query.sort or len(text) > _MAX_TEXT:
        raise ArchiveQueryError("'cursor' must be one that this query returned, with its 'sort'.")
    _sound("cursor", found.request_id)
    return found
