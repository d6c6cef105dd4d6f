"""The order of a query's answer, and the cursor that continues it: the same for records in memory
and in a store.

Requests without the value that is sorted by come last in either direction; equal values are in
order of their request ids.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from observability.admin_api import MAX_PAGE, SORTABLE, RequestQuery

_MOST_CURSOR_CHARS = 512


class QueryError(ValueError):
    """A query that cannot be answered. The message says what is allowed; ``field`` is the parameter
    at fault, if it is one."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Position(NamedTuple):
    """The place of a request in the answer: smaller ones come first. ``value`` is negative if
    descending."""

    is_missing: bool
    value: float
    request_id: str


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    sort: str
    is_missing: bool
    value: float
    request_id: str


@dataclass(frozen=True, slots=True)
class Ordering:
    """``after``: the key of the page before's last request; None for the first page."""

    field: str
    descending: bool
    limit: int
    after: Position | None = None

    @classmethod
    def of(cls, query: RequestQuery) -> Ordering:
        """Raises QueryError for a sort, limit or cursor that is not valid."""
        field = query.sort.removeprefix("-")
        if field not in SORTABLE:
            raise QueryError(
                f"Requests cannot be sorted by {query.sort[:64]!r}; use one of "
                f"{', '.join(SORTABLE)}, with a '-' before it for the largest first.",
                "sort",
            )
        if not 1 <= query.limit <= MAX_PAGE:
            raise QueryError(f"'limit' must be from 1 to {MAX_PAGE:,}.", "limit")
        after = None if query.cursor is None else _decoded(query.cursor, query.sort)
        return cls(field, query.sort.startswith("-"), query.limit, after)

    def key(self, value: float | None, request_id: str) -> Position:
        """Return the key of a request whose ``field`` has this value."""
        if value is None:
            return Position(True, 0.0, request_id)
        return Position(False, -value if self.descending else value, request_id)

    def cursor(self, last: Position) -> str:
        """Return the cursor of the page after the one that ends with this key."""
        sort = f"-{self.field}" if self.descending else self.field
        text = msgspec.json.encode(_Cursor(sort, *last))
        return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _decoded(cursor: str, sort: str) -> Position:
    try:
        if len(cursor) > _MOST_CURSOR_CHARS:
            raise ValueError
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        found = msgspec.json.decode(text, type=_Cursor)
    except (ValueError, binascii.Error) as error:  # msgspec's errors are ValueErrors too
        raise QueryError(
            "The cursor is not valid; send the one of the last page unchanged.", "cursor"
        ) from error
    if found.sort != sort:
        raise QueryError(
            f"The cursor continues a page sorted by {found.sort[:64]!r}, not {sort!r}; send the "
            "same 'sort', or no cursor.",
            "cursor",
        )
    return Position(found.is_missing, found.value, found.request_id)
