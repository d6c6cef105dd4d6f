"""Granian in our process: what the drain and a client's disconnect rest on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.http.server import HttpServer
from service.supervision.listener import ServerAddress, open_listening_socket

PIECE = b"x" * 4096


@dataclass
class App:
    """Streams until ``finish`` is set or the client leaves, and reports which."""

    events: list[str] = field(default_factory=list)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]
    ) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        await receive()
        gone = asyncio.create_task(self._until_gone(receive))
        streaming = asyncio.create_task(self._stream(send))
        await asyncio.wait((gone, streaming), return_when=asyncio.FIRST_COMPLETED)
        self.events.append("finished" if streaming.done() else "client gone")
        for task in (gone, streaming):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.events.append("shutdown")
        await send({"type": "lifespan.shutdown.complete"})

    @staticmethod
    async def _until_gone(receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _stream(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not self.finish.is_set():
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.sent += 1
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass
class Running:
    app: App
    server: HttpServer
    address: ServerAddress

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        return reader, writer

    async def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    app = App()
    listener = open_listening_socket("127.0.0.1", 0)
    address = ServerAddress.of(listener)
    server = HttpServer(app, listener)
    await server.start()
    yield Running(app, server, address)
    app.finish.set()
    await server.stop(5)
    await server.shut_down_app()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (b"/", 99 * [b"x: y"], 200),
        (b"/", 100 * [b"x: y"], 431),
        (b"/" + 65_000 * b"a", [], 200),
        (b"/" + 66_000 * b"a", [], 414),
        (b"/", [b"x: " + 73_000 * b"y"], 200),
        (b"/", [b"x: " + 140_000 * b"y"], 431),
    ],
)
async def test_the_head_of_a_request_is_bounded(
    running: Running, path: bytes, headers: list[bytes], status: int
) -> None:
    """As docs/connections.md says."""
    reader, writer = await asyncio.open_connection(running.address.host, running.address.port)
    writer.write(b"\r\n".join([b"GET %b HTTP/1.1" % path, b"host: test", *headers, b"", b""]))
    assert int((await reader.readline()).split()[1]) == status
    writer.close()


async def test_a_client_that_leaves_is_noticed(running: Running) -> None:
    reader, writer = await running.connect()
    await reader.readexactly(1000)
    writer.close()
    await running.until(lambda: running.app.events == ["client gone"], 5)


async def test_a_client_that_stops_reading_holds_little_memory_and_is_noticed_when_it_leaves(
    running: Running,
) -> None:
    with socket.create_connection((running.address.host, running.address.port)) as stalled:
        stalled.send(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        sent = -1
        while sent != running.app.sent or sent < 1:  # until the server is held back
            sent = running.app.sent
            await asyncio.sleep(0.3)
        assert sent * len(PIECE) < 32 * 1024 * 1024
    await running.until(lambda: running.app.events == ["client gone"], 5)


async def test_stopping_lets_running_responses_finish_and_accepts_no_more(
    running: Running,
) -> None:
    reader, writer = await running.connect()
    await reader.readexactly(1000)
    stopping = asyncio.create_task(running.server.stop(10))
    await asyncio.sleep(0.1)
    assert not stopping.done()
    running.app.finish.set()
    body = await reader.read(-1)
    assert body.endswith(b"\r\n0\r\n\r\n")
    assert await stopping
    assert running.app.events == ["finished"]
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await running.connect()


async def test_stopping_gives_up_on_responses_that_do_not_end(running: Running) -> None:
    reader, writer = await running.connect()
    await reader.readexactly(1000)
    assert not await running.server.stop(0.2)
    writer.close()


async def test_an_app_that_fails_to_start_is_an_error() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no tokenizer"})

    listener = open_listening_socket("127.0.0.1", 0)
    with listener, pytest.raises(RuntimeError, match="did not start"):
        await HttpServer(failing, listener).start()
