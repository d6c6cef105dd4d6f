"""What the messages of a WebSocket connection may take while they wait to be answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from service.admission.drain import Drain
from service.http.responses.memory import Memories
from service.http.responses.socket import _Socket
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import FREE_BYTES, UploadRoom

CREATE = json.dumps({"type": "response.create"})


class Connection:
    """One whose route takes a message, and answers with an error when it may."""

    def __init__(self, room: UploadRoom) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.sizes: list[int] = []
        self.said: list[int] = []
        self.may_answer = asyncio.Event()
        services: Any = SimpleNamespace(
            upload_room=room,
            drain=Drain(1.0),
            settings=SimpleNamespace(max_body_bytes=1 << 20, receive_timeout=30.0),
        )
        scope: Any = {"headers": [], "scheme": "ws", "path": "/v1/responses"}
        self.socket = _Socket(
            self._route, services, Memories(), ANYBODY, scope, self.events.get, self._send
        )

    def client_sends(self, size: int) -> None:
        text = CREATE + " " * (size - len(CREATE))
        self.events.put_nowait({"type": "websocket.receive", "text": text})

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        self.sizes.append(len((await receive())["body"]))
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": {}}', "more_body": False})

    async def _send(self, event: Any) -> None:
        self.said.append(json.loads(event["text"])["status"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def test_messages_sent_ahead_share_the_room_of_arriving_bodies() -> None:
    room = UploadRoom(2500)
    connection = Connection(room)
    serving = asyncio.create_task(connection.socket.serve())
    size = FREE_BYTES + 1000
    connection.client_sends(size)
    await until(lambda: connection.sizes == [size])
    assert room.held == 0  # the route has it
    for _ in range(3):
        connection.client_sends(size)
    await until(connection.events.empty)
    assert room.held == 2000  # and has no room for the fourth
    connection.may_answer.set()
    await until(lambda: len(connection.said) == 4)
    assert connection.said == [400, 400, 400, 429]
    assert connection.sizes == 3 * [size]
    assert room.held == 0
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_connection_that_ends_gives_back_what_its_messages_held() -> None:
    room = UploadRoom(10_000)
    connection = Connection(room)
    serving = asyncio.create_task(connection.socket.serve())
    for _ in range(4):
        connection.client_sends(FREE_BYTES + 1000)
    await until(lambda: room.held == 3000)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert room.held == 0


class Arriving(Connection):
    """One whose client sends a message that does not end. ``size``: what has come of it."""

    def __init__(self, room: UploadRoom, *, receive_timeout: float) -> None:
        super().__init__(room)
        self.size = 0
        self.cut = asyncio.Event()
        self._looked = asyncio.Event()
        settings: Any = self.socket._services.settings
        settings.receive_timeout = receive_timeout
        self.socket._received = self._received
        self.socket._cut = self.cut.set

    def _received(self) -> int:
        self._looked.set()
        return self.size

    async def begin(self) -> asyncio.Task[None]:
        serving = asyncio.create_task(self.socket.serve())
        await self._looked.wait()
        return serving


async def test_an_arriving_message_counts_and_is_cut_if_there_is_no_room() -> None:
    room = UploadRoom(1000)
    connection = Arriving(room, receive_timeout=30)
    with room.arriving(ANYBODY) as other:
        serving = await connection.begin()
        connection.size = FREE_BYTES + 600
        await until(lambda: room.held == 600)
        other(FREE_BYTES + 300)
        connection.size += 200
        async with asyncio.timeout(30):
            await connection.cut.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert room.held == 0


async def test_a_message_that_pauses_is_cut() -> None:
    connection = Arriving(UploadRoom(1 << 20), receive_timeout=0.05)
    serving = await connection.begin()
    connection.size = FREE_BYTES + 1
    async with asyncio.timeout(30):
        await connection.cut.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
