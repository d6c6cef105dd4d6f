"""What may be asked of usage."""

from __future__ import annotations

import pytest

from service.store.request_query import ArchiveQueryError
from service.store.usage_query import USAGE_GROUPS, audit_statement, usage_statement

DAY = 86_400.0


@pytest.mark.parametrize("by", USAGE_GROUPS)
def test_each_group_by_hour_and_by_day(by: str) -> None:
    assert f"quire_usage.{by}" in str(usage_statement(by, 0.0, 31 * DAY, "hour"))
    assert "GROUP BY" in str(usage_statement(by, 0.0, 400 * DAY, "day"))


@pytest.mark.parametrize(
    ("by", "begin", "end", "bucket", "said"),
    [
        ("trace", 0.0, DAY, "hour", "key, model, route"),
        ("key", 0.0, DAY, "minute", "hour, day"),
        ("key", DAY, DAY, "hour", "'from' must be before 'to'"),
        ("key", 0.0, 32 * DAY, "hour", "at most 31 days"),
        ("key", 0.0, 900 * DAY, "day", "at most 800 days"),
        ("key", -1.0, DAY, "day", "'from'"),
    ],
)
def test_anything_else_is_refused(
    by: str, begin: float, end: float, bucket: str, said: str
) -> None:
    with pytest.raises(ArchiveQueryError, match=said) as caught:
        usage_statement(by, begin, end, bucket)
    assert caught.value.field in ("by", "bucket", "from")


def test_audit_rows_come_without_their_numbers() -> None:
    assert "quire_audit.id" not in str(audit_statement(5)).partition("FROM")[0]
