"""``/v1/responses`` over WebSocket: many responses, one after another, on one connection.

Each ``response.create`` message is the body of a ``POST /v1/responses`` with ``"stream": true`` and
is served by the same route, so that keys, admission, outcome, drain and time limits are the same;
its events are sent as JSON messages. What the connection adds is memory: the last response can be
continued by ``previous_response_id`` even if it was not stored.

A message may be as large as a body, and counts as an arriving body until it is answered. The HTTP
server only delivers whole messages; how much of a partial one has arrived is known from the kernel.
This module parses only the few fields that concern the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from litestar.types import Receive, Scope, Send

from service.conversation import JsonObject
from service.errors import (
    BodyTooLargeError,
    NotFoundError,
    OverloadedError,
    QuireError,
)
from service.http.connections import Connections
from service.http.origins import OriginRules
from service.http.responses.memory import ON_CONNECTION, Exchanged, Memories
from service.http.responses.message import Envelope, SocketMessage
from service.http.responses.message_exchange import EventsAsMessages, MessageAsBody, socket_error
from service.http.responses.places import SocketPlaces
from service.http.scope import AsgiApp, api_key_header, header
from service.http.unrouted import unrouted
from service.routes.route import WEBSOCKET
from service.routes.tables import PUBLIC
from service.serving.access import Access
from service.serving.services import Services
from service.tenants.caller import Caller
from service.tenants.limit_memory import LimitMemory
from service.tenants.upload_room import FREE_BYTES, Gained

SOCKET: Final = PUBLIC.named(f"{WEBSOCKET} /v1/responses")
_RUN: Final = PUBLIC.named("POST /v1/responses")  # what serves each message

# Messages read ahead while a response is being sent.
_WAITING_MESSAGES = 2
# Without a message. Clients return after minutes, when their user has finished reading.
_IDLE_SECONDS = 3600.0
# How often the size of an arriving message is updated.
_LOOK_SECONDS = 0.1

# Close codes (RFC 6455, 7.4.1).
_GOING_AWAY = 1001
_TOO_BIG = 1009

# Headers of the handshake, not of the requests on the connection.
_HANDSHAKE = (
    *(b"connection", b"upgrade", b"content-length", b"content-type", b"content-encoding"),
    *(b"transfer-encoding", b"expect", b"x-quire-resumable"),
)


class ResponsesSockets:
    """All WebSocket connections of a worker. ``app`` serves the requests on them."""

    def __init__(
        self,
        app: AsgiApp,
        services: Services,
        access: Access,
        origins: OriginRules,
        connections: Connections,
    ) -> None:
        self._app = app
        self._services = services
        self._access = access
        self._origins = origins
        self._connections = connections
        self._memories = Memories()
        self._places = SocketPlaces(lambda: _counted_in(services), services.settings.max_websockets)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        try:
            caller = await self._check(scope)
            place = self._places.take(caller)
        except QuireError as error:
            await _refuse(send, error, self._note_unrouted(scope, error))
            return
        host, port = scope["client"] or ("", 0)
        peer = self._connections.enter((host, int(port)))
        try:
            await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
            socket = _Socket(
                self._app,
                self._services,
                self._memories,
                caller,
                scope,
                receive,
                send,
                received=lambda: self._connections.received(peer),
                cut=lambda: self._connections.cut(peer),
            )
            try:
                await socket.serve()
            finally:
                self._memories.forget(socket)
        finally:
            self._places.free(place)
            self._connections.leave(peer)

    def _note_unrouted(self, scope: Scope, error: QuireError) -> dict[str, str]:
        """Count and log a handshake at a path that has no WebSocket; return headers for it."""
        if not isinstance(error, NotFoundError):
            return {}
        exchange = unrouted(scope, self._services.ids.new("req_"), self._services.telemetry)
        exchange.fail(error)
        exchange.record.status = error.status
        exchange.close()
        return exchange.headers

    async def _check(self, scope: Scope) -> Caller:
        """Return the caller. Raises QuireError."""
        self._origins.check(scope)
        if scope["path"] not in (SOCKET.path, SOCKET.path.removeprefix("/v1")):
            raise NotFoundError(f"There is no WebSocket at {scope['path']}; see /docs.")
        key = header(scope, b"authorization"), api_key_header(scope)
        caller = await self._access.check(SOCKET, *key)
        if self._services.drain.refuses:
            raise self._services.drain.refusal()
        return caller


def _counted_in(services: Services) -> LimitMemory:
    # A single worker counts in private memory; the shared file would take 17 MB.
    alone = services.settings.api_workers == 1
    return LimitMemory(None) if alone else services.metering.ledger.memory


async def _refuse(send: Send, error: QuireError, more: dict[str, str]) -> None:
    headers = {"content-type": "application/json", **error.headers(), **more}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    start: Any = {
        "type": "websocket.http.response.start",
        "status": error.status,
        "headers": encoded,
    }
    body: Any = {"type": "websocket.http.response.body", "body": error.to_body()}
    await send(start)
    await send(body)


class _Socket:
    """An accepted connection."""

    def __init__(
        self,
        app: AsgiApp,
        services: Services,
        memories: Memories,
        caller: Caller,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        received: Callable[[], int | None] = lambda: None,
        cut: Callable[[], None] = lambda: None,
    ) -> None:
        """``received``: returns the bytes read from the client; ``cut`` closes the connection."""
        self._received = received
        self._cut = cut
        self._app = app
        self._services = services
        self._memories = memories
        self._caller = caller
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limit = SOCKET.body.most_bytes(services.settings.max_body_bytes)
        self._messages: asyncio.Queue[SocketMessage] = asyncio.Queue(_WAITING_MESSAGES)
        self._unanswered: set[SocketMessage] = set()
        self._left = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        self._reading = asyncio.create_task(self._read(), name="websocket-reader")
        try:
            while not self._left.is_set():
                message = await self._next()
                if message is None:
                    break
                self._unanswered.discard(message)
                await self._answer(message)
                if isinstance(message.refusal, BodyTooLargeError):
                    await self._close(_TOO_BIG)
                    break
        finally:
            await self._read_no_more()
            for message in self._unanswered:
                message.take()

    async def _read_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        try:
            while True:
                event: Any = await self._next_event()
                if event["type"] != "websocket.receive":
                    return
                message = SocketMessage(
                    self._services.upload_room, self._caller, event, self._limit
                )
                del event
                self._unanswered.add(message)
                await self._messages.put(message)
        finally:
            self._left.set()

    async def _next_event(self) -> Any:
        with self._services.upload_room.arriving(self._caller) as gained:
            counting = asyncio.create_task(self._count_arriving(gained), name="websocket-arrival")
            try:
                return await self._receive()
            finally:
                counting.cancel()

    async def _count_arriving(self, gained: Gained) -> None:
        """Count the received part of a message as an arriving body. If there is no room for it, or
        it arrives too slowly, the connection is cut, as there is no other way to stop it."""
        loop = asyncio.get_running_loop()
        seconds = self._services.settings.receive_timeout
        began = seen = self._received()
        since = loop.time()
        while began is not None and seen is not None:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._received()
            if now is None:
                return
            if now > seen:
                try:
                    gained(now - seen)
                except OverloadedError:
                    self._cut()
                    return
                seen, since = now, loop.time()
            elif seen - began > FREE_BYTES and loop.time() - since > seconds:
                self._cut()
                return

    async def _next(self) -> SocketMessage | None:
        """Return the next message; None when the client has left, is idle for too long, or the
        server shuts down."""
        drain = self._services.drain
        if drain.refuses:
            await self._close(_GOING_AWAY)
            return None
        patience = asyncio.timeout(_IDLE_SECONDS)
        message = asyncio.ensure_future(self._messages.get())
        left = asyncio.ensure_future(self._left.wait())
        try:
            async with patience:
                drain.uploads.add(patience)
                await asyncio.wait((message, left), return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else None
        except TimeoutError:
            await self._close(_GOING_AWAY)
            return None
        finally:
            drain.uploads.discard(patience)
            message.cancel()
            left.cancel()

    async def _answer(self, message: SocketMessage) -> None:
        lane: str | None = None
        try:
            asked = message.envelope()
            lane = asked.stream_id
            await self._respond(message, asked)
        except QuireError as error:
            await self._fail(error, lane)
        finally:
            message.take()

    async def _respond(self, message: SocketMessage, asked: Envelope) -> None:
        lane = asked.stream_id
        previous = self._memories.find(self, asked.previous_response_id)
        exchanged = Exchanged(previous, warms_up=asked.generate is False)
        reply = EventsAsMessages(lambda event: self._say(event, lane))
        request = MessageAsBody(message, self._left)
        await self._app(self._http_scope({ON_CONNECTION: exchanged}), request.receive, reply.send)
        if reply.error is not None:
            await self._say(reply.error, lane)
            return
        history = exchanged.remembered()
        if history is not None and history.size <= self._limit:
            self._memories.keep(self, exchanged.response_id, history)

    def _http_scope(self, state: JsonObject) -> JsonObject:
        headers = [
            (name, value)
            for name, value in self._scope["headers"]
            if name not in _HANDSHAKE and not name.startswith(b"sec-websocket")
        ]
        return {
            **self._scope,
            "type": "http",
            "scheme": "https" if self._scope["scheme"] == "wss" else "http",
            "method": _RUN.method,
            "path": _RUN.path,
            "raw_path": _RUN.path.encode(),
            "headers": [*headers, (b"content-type", b"application/json")],
            "state": state,
        }

    async def _fail(self, error: QuireError, lane: str | None = None) -> None:
        await self._say(socket_error(error.status, error.to_body(), error.headers()), lane)

    async def _say(self, event: bytes, lane: str | None) -> None:
        """Send one event; ``lane`` is returned to the client that named it."""
        if lane is not None:
            event = b'{"stream_id":%b,' % msgspec.json.encode(lane) + event[1:]
        message: Any = {"type": "websocket.send", "text": event.decode()}
        if not self._left.is_set():
            try:
                await self._send(message)
            except RuntimeError:  # it has just been closed
                self._left.set()

    async def _close(self, code: int) -> None:
        message: Any = {"type": "websocket.close", "code": code, "reason": ""}
        if not self._left.is_set():
            await self._read_no_more()  # a read in progress blocks the close
            await self._send(message)
