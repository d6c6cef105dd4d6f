"""A store that is open, and what is stored in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from service.store.place import store_place
from service.store.record import StoredResponse
from service.store.schema import database_url
from service.store.store import ResponseStore, StoreLimits

MANY = StoreLimits(responses=1000, bytes=1 << 30, ttl=1000)


@asynccontextmanager
async def opened(url: str, limits: StoreLimits = MANY) -> AsyncIterator[ResponseStore]:
    store = ResponseStore(store_place(url), limits)
    store.open()
    try:
        await until(lambda: store.available)
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def record(
    response_id: str, owner: str = "me", *, text: str = "Hi", ttl: int = 1000
) -> StoredResponse:
    now = int(time.time())
    body = {"id": response_id, "output": [{"type": "message", "id": "m", "text": text}]}
    return StoredResponse(
        id=response_id,
        owner=owner,
        created_at=now,
        expires_at=now + ttl,
        status="completed",
        body=json.dumps(body).encode(),
        input='[{"role":"user","content":"Grüße 🚀"}]'.encode(),
        context=b'[{"role":"user","content":"before"}]',
        events=b"id: 0\ndata: x\n\n",
    )


async def rows_of(store: ResponseStore, response_id: str) -> int:
    """How many rows the database itself has of it."""
    assert store._database is not None
    return int(await store._database.find(response_id) is not None)


async def execute(url: str, statement: str) -> None:
    engine = create_async_engine(database_url(store_place(url)), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(statement))
    await engine.dispose()
