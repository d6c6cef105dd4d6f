"""A store that fails for a while, as SQLAlchemy reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from service.store.database import Database
from service.store.injection import Outage, inject
from service.store.place import store_place
from tests.service.store.stored import record


@pytest.fixture
def fail() -> Iterator[Callable[[Outage], None]]:
    """Inject an outage until the end of the test."""
    outages: list[Outage] = []

    def begin(outage: Outage) -> None:
        outages.append(outage)
        inject([outage])

    yield begin
    for outage in outages:
        event.remove(Engine, "before_cursor_execute", outage.before_statement)


@pytest.mark.parametrize("spares_reads", [False, True])
async def test_statements_fail_for_as_long_as_it_lasts(
    tmp_path: Path, fail: Callable[[Outage], None], spares_reads: bool
) -> None:
    database = Database(store_place(f"sqlite:///{tmp_path}/store.sqlite3"))
    await database.bring_up_to_date()
    kept = record("resp_1")
    await database.write([kept], (), lease=60)
    now, begins = 100.0, [True]
    fail(
        Outage(
            "the disk is full",
            lambda: bool(begins and begins.pop()),
            5.0,
            spares_reads=spares_reads,
            clock=lambda: now,
        )
    )
    if spares_reads:
        assert await database.find("resp_1") is not None
    with pytest.raises(Database.FAILURES) as caught:
        await database.write([record("resp_2")], (), lease=60)
    assert "the disk is full" in database.explain(caught.value)
    if not spares_reads:
        with pytest.raises(Database.FAILURES):
            await database.find("resp_1")
    now += 5.0
    await database.write([record("resp_2")], (), lease=60)
    assert await database.find("resp_2") is not None
    await database.close()
