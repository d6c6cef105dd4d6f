"""The tables have what is filtered and sorted by as columns, all in one index."""

from __future__ import annotations

from observability.admin_api import SORTABLE, AuditRow
from observability.usage_table import UsageFigures, UsageGroup
from service.store.archive_tables import AUDIT_TABLE, REQUEST_TABLE, USAGE_TABLE


def test_the_index_has_all_that_queries_need() -> None:
    [index] = [one for one in REQUEST_TABLE.indexes if one.name == "ix_quire_requests_ended"]
    filtered = {"ended", "key", "model", "route", "outcome", "phase"}
    assert {*SORTABLE, *filtered} <= {column.name for column in index.columns}


def test_usage_has_its_group_and_figures() -> None:
    assert [column.name for column in USAGE_TABLE.columns] == [
        *("hour", *UsageGroup._fields, "boot"),
        *UsageFigures._fields,
    ]


def test_audit_has_the_fields_of_its_rows() -> None:
    assert [column.name for column in AUDIT_TABLE.columns] == ["id", *AuditRow.__struct_fields__]
