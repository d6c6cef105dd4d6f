"""Queries for usage and audit as SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Select, cast, func, select

from service.store.archive_tables import AUDIT_TABLE, USAGE_TABLE
from service.store.request_query import ArchiveQueryError

USAGE_GROUPS = ("key", "model", "route")
MAX_USAGE_ROWS = 20_000
_HOUR_SECONDS = 3600
_HOURS = {"hour": 1, "day": 24}
_MOST_DAYS = {"hour": 31, "day": 800}
_WHOLE = (
    *("requests", "errors", "prompt_tokens", "cached_tokens", "output_tokens"),
    "reasoning_tokens",
)


def usage_statement(by: str, begin: float, end: float, bucket: str) -> Select[Any]:
    """Return the statement for the fields of ``UsageRow``: of the whole hours or days (of UTC) from
    the one with ``begin`` to before ``end``; at most one row more than ``MAX_USAGE_ROWS``. Raises
    ArchiveQueryError."""
    if by not in USAGE_GROUPS:
        raise ArchiveQueryError(f"'by' must be one of {', '.join(USAGE_GROUPS)}.", "by")
    if bucket not in _HOURS:
        raise ArchiveQueryError(f"'bucket' must be one of {', '.join(_HOURS)}.", "bucket")
    if not 0 <= begin < end or end - begin > _MOST_DAYS[bucket] * 86_400:
        raise ArchiveQueryError(
            f"'from' must be before 'to', by at most {_MOST_DAYS[bucket]} days where 'bucket' is "
            f"{bucket}.",
            "from",
        )
    hours = _HOURS[bucket]
    columns = USAGE_TABLE.c
    first = int(begin // _HOUR_SECONDS) // hours * hours
    start = (columns.hour - columns.hour % hours) * _HOUR_SECONDS
    group = columns[by]
    # PostgreSQL's sums of integers are decimals.
    sums = [cast(func.sum(columns[name]), BigInteger).label(name) for name in _WHOLE]
    return (
        select(
            start.label("start"),
            group.label("group"),
            *sums,
            func.sum(columns.seconds).label("seconds"),
        )
        .where(columns.hour >= first, columns.hour * _HOUR_SECONDS < end)
        .group_by(start, group)
        .order_by(start, group)
        .limit(MAX_USAGE_ROWS + 1)
    )


def audit_statement(limit: int) -> Select[Any]:
    """Return the statement for the fields of ``AuditRow``, the newest first."""
    columns = [column for column in AUDIT_TABLE.columns if column.name != "id"]
    return (
        select(*columns).order_by(AUDIT_TABLE.c.time.desc(), AUDIT_TABLE.c.id.desc()).limit(limit)
    )
