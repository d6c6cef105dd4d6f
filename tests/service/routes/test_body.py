"""Tests of reading bodies: the memory that all of them may take while they arrive."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from service.errors import OverloadedError
from service.generation.record import RequestRecord
from service.observer import NoTelemetry
from service.routes.body import read_body
from service.routes.exchange import EXCHANGE, Exchange
from service.upload_room import FREE_BYTES, UploadRoom

LIMIT = 8 * FREE_BYTES


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_bodies_that_arrive_share_one_room(encoding: str) -> None:
    room = UploadRoom(LIMIT)
    half = gzip.compress(bytes(LIMIT - 1))[:-1] if encoding == "gzip" else bytes(LIMIT - 1)
    first = asyncio.create_task(_read(room, encoding, half, more=True))
    while not (first.done() or room.held == LIMIT - 1 - FREE_BYTES):
        await asyncio.sleep(0)
    assert not first.done()
    with pytest.raises(OverloadedError):
        await _read(room, encoding, half, more=True)
    assert await _read(room, "identity", b"{}", more=False) == b"{}"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert room.held == 0


async def _read(room: UploadRoom, encoding: str, piece: bytes, *, more: bool) -> bytes:
    record = RequestRecord("req_1", "chat_completions", "POST", "/", 0.0, 0)
    exchange = Exchange(record, NoTelemetry(), upload_room=room)
    sent = False

    async def receive() -> Any:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": piece, "more_body": more}

    scope: Any = {
        "headers": [(b"content-encoding", encoding.encode())],
        "state": {EXCHANGE: exchange},
    }
    return await read_body(scope, receive, limit=LIMIT)
