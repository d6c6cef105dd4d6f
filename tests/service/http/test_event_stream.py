"""When a stream that has nothing to say says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from litestar import Request

from service.errors import OperatorCancelError
from service.http.event_stream import KEEP_ALIVE, EventStream
from service.http.scope import CUT_CLIENT, EXCHANGE
from service.serving.exchange import Exchange
from service.serving.stream import Outlet
from service.telemetry.observer import NoTelemetry
from tests.service.serving.by_hand import record

pytestmark = pytest.mark.integration

KEEP_ALIVE_SECONDS = 0.4


async def test_comments_come_at_the_requested_interval() -> None:
    """Not half as often: a proxy's limit may be between the two."""
    comments = ticks = 0
    enough = asyncio.Event()

    async def tick() -> None:
        """Beside the stream, and late when that is."""
        nonlocal ticks
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS / 2)
            ticks += 1

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        await enough.wait()

    async def send(message: Any) -> None:
        nonlocal comments
        if message.get("body") == KEEP_ALIVE:
            comments += 1
            if comments == 5:
                enough.set()

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(
        events(), {}, patience=60.0, keep_alive=KEEP_ALIVE_SECONDS, cut=lambda error: None
    )
    scope: Any = {"type": "http", "state": {}}
    ticking = asyncio.create_task(tick())
    await stream.to_asgi_response(None, Request(scope))(scope, receive, send)
    ticking.cancel()
    assert 9 <= ticks < 18


async def test_nothing_follows_the_end_however_long_it_takes() -> None:
    bodies: list[dict[str, Any]] = []
    cuts: list[Exception] = []

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            bodies.append(message)
            if not message["more_body"]:
                await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(events(), {}, patience=0.3, keep_alive=0.1, cut=cuts.append)
    scope: Any = {"type": "http", "state": {}}
    response = stream.to_asgi_response(None, Request(scope))
    await asyncio.wait_for(response(scope, receive, send), 10)
    assert [body["body"] for body in bodies] == [b"data: 1\n\n", b""]
    assert len(cuts) == 1


async def test_a_cancelled_request_does_not_wait_for_a_client_that_reads_nothing() -> None:
    exchange = Exchange(record(), NoTelemetry())
    blocked = asyncio.Event()
    cut: list[bool] = []

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            blocked.set()
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(events(), {}, patience=600.0, keep_alive=600.0, cut=exchange.fail)
    scope: Any = {
        "type": "http",
        "state": {EXCHANGE: exchange, CUT_CLIENT: lambda: cut.append(True)},
    }
    response = stream.to_asgi_response(None, Request(scope))
    sending = asyncio.ensure_future(response(scope, receive, send))
    await asyncio.wait_for(blocked.wait(), 10)
    exchange.cancel(OperatorCancelError("It was cancelled."))
    await asyncio.wait_for(sending, 10)
    assert cut == [True]
    assert exchange.record.outcome == "cancelled"
    assert exchange.on_cancel is None


async def test_what_is_pushed_while_a_comment_is_sent_follows_it() -> None:
    bodies: list[bytes] = []
    outlet = Outlet[bytes]()
    commenting, go_on, pushed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        await commenting.wait()
        assert outlet.sender is not None
        assert not outlet.sender.write(b"data: 2\n\n")
        pushed.set()
        await outlet.sender.drained()
        yield b"data: 3\n\n"

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            if message["body"] == KEEP_ALIVE and not commenting.is_set():
                commenting.set()
                await go_on.wait()
            bodies.append(message["body"])

    async def receive() -> Any:
        await asyncio.Event().wait()

    stream = EventStream(
        events(), {}, patience=60.0, keep_alive=0.1, cut=lambda error: None, outlet=outlet
    )
    scope: Any = {"type": "http", "state": {}}
    response = stream.to_asgi_response(None, Request(scope))
    sending = asyncio.ensure_future(response(scope, receive, send))
    await asyncio.wait_for(pushed.wait(), 10)
    go_on.set()
    await asyncio.wait_for(sending, 10)
    assert bodies == [b"data: 1\n\n", KEEP_ALIVE, b"data: 2\n\n", b"data: 3\n\n", b""]


async def test_a_comment_that_begins_as_one_ends_loses_no_chunk_that_waits() -> None:
    """As when a client has not read for as long as the interval, and the timer is due just then."""
    bodies: list[bytes] = []
    outlet = Outlet[bytes]()
    commenting, go_on, pushed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def events() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        await commenting.wait()
        assert outlet.sender is not None
        assert not outlet.sender.write(b"data: 2\n\n")
        pushed.set()
        await outlet.sender.drained()
        yield b"data: 3\n\n"

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            if message["body"] == KEEP_ALIVE and not commenting.is_set():
                commenting.set()
                await go_on.wait()
            bodies.append(message["body"])

    async def receive() -> Any:
        await asyncio.Event().wait()

    def both_at_once() -> None:
        time.sleep(0.3)  # the timer becomes due while the loop is busy
        loop.call_soon(go_on.set)

    stream = EventStream(
        events(), {}, patience=60.0, keep_alive=0.1, cut=lambda error: None, outlet=outlet
    )
    scope: Any = {"type": "http", "state": {}}
    response = stream.to_asgi_response(None, Request(scope))
    sending = asyncio.ensure_future(response(scope, receive, send))
    await asyncio.wait_for(pushed.wait(), 10)
    await asyncio.sleep(0)
    loop.call_soon(both_at_once)
    await asyncio.wait_for(sending, 10)
    assert bodies.count(KEEP_ALIVE) == 2
    told = [body for body in bodies if body != KEEP_ALIVE]
    assert told == [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n", b""]
