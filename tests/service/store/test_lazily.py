"""A database is loaded once, on first use, and its failures say what is away."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import StoreUnavailableError
from service.store.lazily import Lazily


class Database:
    FAILURES = (OSError,)

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class RefusedError(OSError):
    sqlstate = "53300"


async def test_it_is_loaded_once_and_closed_if_it_was_used() -> None:
    made: list[Database] = []

    def load() -> Database:
        made.append(Database())
        return made[-1]

    unused: Lazily[Database] = Lazily(load, "database")
    await unused.close()
    assert made == []

    async def use(lazily: Lazily[Database]) -> Database:
        async with lazily.asked() as database:
            return database

    used: Lazily[Database] = Lazily(load, "database")
    found = await asyncio.gather(*(use(used) for _ in range(3)))
    assert found == made * 3
    await used.close()
    assert made[0].is_closed


async def test_its_failures_are_one_error_that_shows_no_values() -> None:
    lazily: Lazily[Database] = Lazily(Database, "database of secrets")
    with pytest.raises(StoreUnavailableError, match=r"^The database of secrets .* \(OSError\)"):
        async with lazily.asked():
            raise OSError("password=1")
    with pytest.raises(StoreUnavailableError, match=r"\(RefusedError, SQLSTATE 53300\)"):
        async with lazily.asked():
            raise RefusedError("password=1")
    with pytest.raises(ValueError, match="a bug"):
        async with lazily.asked():
            raise ValueError("a bug")
