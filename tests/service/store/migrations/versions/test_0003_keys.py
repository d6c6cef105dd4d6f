"""The third migration makes the tables of API keys, and takes them back."""

from __future__ import annotations

import importlib

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect

from service.store.key_database import KEY_STATE_TABLE, KEY_TABLE

migration = importlib.import_module("service.store.migrations.versions.0003_keys")


def test_it_makes_the_tables_with_their_indexes_and_takes_all_back() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.upgrade()
        made = inspect(connection)
        tables = (KEY_STATE_TABLE, KEY_TABLE)
        assert made.get_table_names() == [table.name for table in tables]
        for table in tables:
            names = [column["name"] for column in made.get_columns(table.name)]
            assert names == [column.name for column in table.columns]
            indexes = {index["name"] for index in made.get_indexes(table.name)}
            assert indexes == {index.name for index in table.indexes}
        state = connection.execute(KEY_STATE_TABLE.select()).all()
        assert [tuple(row) for row in state] == [(1, 1)]
        migration.downgrade()
        assert inspect(connection).get_table_names() == []


def test_it_is_the_third() -> None:
    assert (migration.revision, migration.down_revision) == ("0003", "0002")
