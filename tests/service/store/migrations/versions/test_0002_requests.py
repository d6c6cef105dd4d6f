"""The second migration makes the tables of requests, usage and audit, and takes them back."""

from __future__ import annotations

import importlib

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect

from service.store.archive_tables import AUDIT_TABLE, REQUEST_TABLE, USAGE_TABLE

migration = importlib.import_module("service.store.migrations.versions.0002_requests")


def test_it_makes_the_tables_with_their_indexes_and_takes_all_back() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.upgrade()
        made = inspect(connection)
        tables = (AUDIT_TABLE, REQUEST_TABLE, USAGE_TABLE)
        assert made.get_table_names() == [table.name for table in tables]
        for table in tables:
            names = [column["name"] for column in made.get_columns(table.name)]
            assert names == [column.name for column in table.columns]
            indexes = {index["name"] for index in made.get_indexes(table.name)}
            assert indexes == {index.name for index in table.indexes}
        migration.downgrade()
        assert inspect(connection).get_table_names() == []


def test_it_is_the_second() -> None:
    assert (migration.revision, migration.down_revision) == ("0002", "0001")
