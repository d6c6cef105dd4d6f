"""The fourth migration makes the table of shared limits, and takes it back."""

from __future__ import annotations

import importlib

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect

from service.store.limit_database import LIMIT_USE_TABLE

migration = importlib.import_module("service.store.migrations.versions.0004_limit_use")


def test_it_makes_the_table_and_takes_it_back() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.upgrade()
        made = inspect(connection)
        assert made.get_table_names() == [LIMIT_USE_TABLE.name]
        names = [column["name"] for column in made.get_columns(LIMIT_USE_TABLE.name)]
        assert names == [column.name for column in LIMIT_USE_TABLE.columns]
        key = made.get_pk_constraint(LIMIT_USE_TABLE.name)["constrained_columns"]
        assert key == [column.name for column in LIMIT_USE_TABLE.primary_key]
        migration.downgrade()
        assert inspect(connection).get_table_names() == []


def test_it_is_the_fourth() -> None:
    assert (migration.revision, migration.down_revision) == ("0004", "0003")
