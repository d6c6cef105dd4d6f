"""The first migration makes the table of responses, and takes all of it back."""

from __future__ import annotations

import importlib

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect

from service.store.tables import ResponseRow

migration = importlib.import_module("service.store.migrations.versions.0001_responses")


def test_it_makes_the_table_with_its_indexes_and_takes_all_back() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.upgrade()
        made = inspect(connection)
        assert made.get_table_names() == [ResponseRow.__tablename__]
        columns = made.get_columns(ResponseRow.__tablename__)
        assert [column["name"] for column in columns if column["nullable"]] == ["events"]
        assert made.get_pk_constraint(ResponseRow.__tablename__)["constrained_columns"] == ["id"]
        indexes = made.get_indexes(ResponseRow.__tablename__)
        assert [index["column_names"] for index in indexes] == [["created_at"], ["expires_at"]]
        migration.downgrade()
        assert inspect(connection).get_table_names() == []


def test_it_is_the_first() -> None:
    assert (migration.revision, migration.down_revision) == ("0001", None)
