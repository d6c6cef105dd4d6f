"""Queries that take too long are stopped, and do not hold up others."""

from __future__ import annotations

import pytest
from sqlalchemy import select, text

from service.store import archive_database
from tests.service.store.archived import archived, kept

SLOW = {
    "sqlite": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT count(*) FROM n WHERE i < 0"
    ),
    "postgresql": "SELECT pg_sleep(60)",
}


async def test_a_query_that_takes_too_long_is_stopped(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived(url) as one:
        database = one.archive._database
        assert database is not None
        monkeypatch.setattr(archive_database, "QUERY_SECONDS", 0.3)
        with pytest.raises(TimeoutError):
            await database.rows(text(SLOW[database.backend]))  # type: ignore[arg-type]
        monkeypatch.undo()
        one.keep(kept(1))
        await one.written()
        assert list(await database.rows(select(text("1")))) == [(1,)]
