"""An error is named so that it can be looked up, without a row in it."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from service.store.driver_error import error_kind, error_sentence
from service.store.place import store_place
from service.store.schema import database_url
from service.store.watched_file import FileReplacedError
from tests.service.running_postgres import Postgres


def test_other_errors_are_named_by_their_kind() -> None:
    assert error_kind(TimeoutError("row 1")) == "TimeoutError"
    assert error_sentence(TimeoutError()) == "TimeoutError"
    wrapped = DBAPIError("SELECT 1", None, OSError("row 1"))
    assert error_kind(wrapped) == "OSError"
    assert error_sentence(wrapped) == "row 1 (OSError)"


def test_an_error_of_ours_is_in_words() -> None:
    error = FileReplacedError("the file was replaced")
    assert error_kind(error) == error_sentence(error) == "the file was replaced"


@pytest.mark.debian
async def test_an_error_of_postgresql_has_its_code(postgres: Postgres) -> None:
    engine = create_async_engine(database_url(store_place(postgres.url)))
    raises = "DO $$ BEGIN RAISE 'secret' USING ERRCODE = '53200'; END $$"
    with pytest.raises(DBAPIError, match="secret") as caught:
        async with engine.begin() as connection:
            await connection.execute(text(raises))
    assert error_kind(caught.value) == "OutOfMemoryError, SQLSTATE 53200"
    assert error_sentence(caught.value, "ec") == "s…ret (OutOfMemoryError, SQLSTATE 53200)"
    await engine.dispose()
