"""Handles what is common to all routes: paths, methods, CORS, and the time limit for slow
readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

from litestar import HttpMethod
from litestar.types import HTTPReceiveMessage, HTTPScope, Message, Receive, Scope, Send

from service.admission.drain import Drain
from service.errors import SlowReaderError
from service.http.connections import Connections, Peer
from service.http.origins import Headers, OriginRules
from service.http.scope import (
    ASKED_HEAD,
    ASKED_PATH,
    CLIENT_STAYS,
    CUT_CLIENT,
    FORWARDED,
    SERVER_SEND,
    AsgiApp,
    exchange_in,
    header,
)

VERSION_PREFIX = "/v1"

# A larger answer is written in pieces, each as soon as there is room for it.
_PIECE_BYTES = 16 * 1024
_WHOLE_BYTES = 128 * 1024
# The HTTP server buffers this many pieces itself. Sending the last bytes one by one makes sure that
# the final one can only be written when everything before it has been accepted.
_HELD_PIECES = 6
_LOOK_SECONDS = (0.01, 0.5)
# At most this much of a refused body is read, for at most this long in all and without a byte.
_DISCARDED_BYTES = 64 * 1024 * 1024
_DISCARD_SECONDS = 5.0
_SILENT_SECONDS = 0.5


def first_segments(paths: Iterable[str]) -> frozenset[str]:
    """Return the first path segments that are also served without the version, such as ``chat`` for
    ``/v1/chat/completions``."""
    prefix = f"{VERSION_PREFIX}/"
    return frozenset(
        path.removeprefix(prefix).partition("/")[0] for path in paths if path.startswith(prefix)
    )


class Door:
    """``versioned``: first segments of the paths below ``/v1``. ``patience``: seconds that a client
    may block one write of its answer."""

    def __init__(
        self,
        origins: OriginRules,
        connections: Connections,
        *,
        versioned: frozenset[str],
        patience: float,
    ) -> None:
        self._origins = origins
        self._connections = connections
        self._versioned = versioned
        self.patience = patience

    async def serve(self, app: AsgiApp, scope: HTTPScope, receive: Receive, send: Send) -> None:
        asked = scope["path"]
        self._add_version(scope)
        preflight = self._origins.preflight(scope)
        if preflight is not None:
            await send({"type": "http.response.start", "status": 204, "headers": preflight})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        state = scope.setdefault("state", {})
        state[ASKED_PATH] = asked
        host, port = scope["client"] or ("", 0)
        peer = self._connections.enter((host, int(port)))
        answer = _Answer(
            scope,
            send,
            self._origins.response_headers(scope),
            peer,
            self._connections,
            patience=self.patience,
        )
        state[CUT_CLIENT] = answer.cut
        state[CLIENT_STAYS] = lambda: self._connections.stays(peer)
        if scope["method"] == "HEAD":
            scope["method"] = HttpMethod.GET.value
            answer.headless = True
            state[SERVER_SEND] = answer.send
            state[ASKED_HEAD] = send
        else:
            # Streams bypass everything that only concerns the start of a response.
            state[SERVER_SEND] = send
        # With HTTP/2 the server never stops reading; a forwarded request has no connection here.
        if scope["http_version"] == "2" or FORWARDED in state:
            receiver = None
        else:
            receive = receiver = _Receiver(receive, peer)
        try:
            await app(scope, receive, answer.send)
        finally:
            # They refer back to the scope; the garbage collector would have to find them.
            state.pop(CUT_CLIENT, None)
            state.pop(SERVER_SEND, None)
            self._connections.leave(peer)
        # From here on, the connection may be closed for others, or because the server ends.
        if receiver is not None and _sends_a_body(scope):
            exchange = exchange_in(scope)
            if not await receiver.discard(exchange.drain if exchange else None):
                # Without a receiver, the HTTP server does not always close it.
                self._connections.end(peer)

    def _add_version(self, scope: Scope) -> None:
        path = scope["path"]
        if path[1:].partition("/")[0] in self._versioned:
            scope["path"] = VERSION_PREFIX + path
            scope["raw_path"] = VERSION_PREFIX.encode() + scope.get("raw_path", path.encode())


def _sends_a_body(scope: Scope) -> bool:
    """Return whether the client sends a body over HTTP/1, one that can be read to its end, without
    waiting for 100 Continue."""
    if header(scope, b"expect"):
        return False
    if header(scope, b"transfer-encoding"):
        return True
    announced = header(scope, b"content-length")
    return announced.isdigit() and len(announced) < 10 and 0 < int(announced) <= _DISCARDED_BYTES


def _is_being_cancelled() -> bool:
    """Return whether the current task is. A caller must not have the task in a variable: a
    cancelled task keeps the traceback, which refers to the variable, and thus would to itself."""
    own = asyncio.current_task()
    return own is None or own.cancelling() > 0


class _Receiver:
    """Also reports that the client has left when only ``Connections`` notices it."""

    def __init__(self, receive: Receive, peer: Peer) -> None:
        self._receive = receive
        self._peer = peer
        self._body_ended = False

    async def discard(self, drain: Drain | None) -> bool:
        """Read the rest of the body of a request that is answered already; False if it was too
        long, too slow, or the server ends. Many clients read nothing before they have sent
        everything; the HTTP server would close their connection, and they would never see why."""
        left, clock = _DISCARDED_BYTES, asyncio.get_running_loop().time
        # Not less: by then the HTTP server has sent the answer.
        soon = clock() + _SILENT_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._body_ended and left > 0:
                    if drain is not None and drain.is_ending and clock() >= soon:
                        break
                    async with asyncio.timeout(_SILENT_SECONDS):
                        event = await self()
                    left -= len(event["body"]) if event["type"] == "http.request" else 0
        return self._body_ended

    async def __call__(self) -> HTTPReceiveMessage:
        if not self._body_ended:
            event = await self._receive()
            self._body_ended = not event.get("more_body")
            return cast(HTTPReceiveMessage, event)
        peer = self._peer
        leaving = asyncio.ensure_future(_message(self._receive))
        peer.leaving.add(leaving)
        try:
            return await leaving
        except asyncio.CancelledError:
            if leaving.cancelled() and not _is_being_cancelled():
                return {"type": "http.disconnect"}
            raise
        finally:
            peer.leaving.discard(leaving)
            leaving.cancel()


async def _message(receive: Receive) -> HTTPReceiveMessage:
    """Return the next message. In a task, await this and not what ``receive`` returns: the HTTP
    server's awaitable holds the task, out of the garbage collector's sight, and a cancelled task
    holds the frames that it ran in. No frame may hold the awaitable, or none of them is freed."""
    return cast(HTTPReceiveMessage, await receive())


class _Answer:
    """A response being sent."""

    def __init__(
        self,
        scope: Scope,
        send: Send,
        headers: Headers,
        peer: Peer,
        connections: Connections,
        *,
        patience: float,
    ) -> None:
        self.headless = False
        self._scope = scope
        self._send = send
        self._headers = headers
        self._peer = peer
        self._connections = connections
        self._patience = patience
        self._begun = False
        self._done = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._headers:
                message["headers"] = [*message["headers"], *self._headers]
            await self._send(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self.headless:
            if not self._done:
                self._done = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif message["more_body"] or self._begun or len(message["body"]) <= _WHOLE_BYTES:
            self._begun = True
            await self._send(message)
        else:
            await self._send_in_pieces(message["body"])

    def cut(self) -> None:
        """Close the client's connection, unless other requests are in progress on it."""
        if self._scope["http_version"] != "2" or self._peer.requests <= 1:
            self._connections.cut(self._peer)

    async def _send_in_pieces(self, body: bytes) -> None:
        """Return when the client has received the pieces, or left."""
        begin = time.monotonic()
        exchange = exchange_in(self._scope)
        if exchange is not None:
            exchange.record.flush.waiting_since = begin
        try:
            last = len(body) - _HELD_PIECES
            for start in range(0, last, _PIECE_BYTES):
                await self._write(body[start : min(start + _PIECE_BYTES, last)], more=True)
            for index in range(last, len(body)):
                await self._write(body[index : index + 1], more=index + 1 < len(body))
            await self._taken()
        except TimeoutError:
            if exchange is not None:
                exchange.cut(SlowReaderError("The client did not read its answer."))
            self.cut()
        finally:
            if exchange is not None:
                exchange.record.flush.waited(begin, time.monotonic())

    async def _write(self, piece: bytes, *, more: bool) -> None:
        async with asyncio.timeout(self._patience):
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _taken(self) -> None:
        """Wait until nothing is left in the kernel's buffer. Raises TimeoutError when there is no
        progress."""
        if self._scope["http_version"] == "2":
            return  # the buffer is shared; flow control has held this one back
        loop = asyncio.get_running_loop()
        pause, longest = _LOOK_SECONDS
        left, since = -1, loop.time()
        while waiting := self._connections.unsent(self._peer):
            if waiting != left:
                left, since = waiting, loop.time()
            elif loop.time() - since >= self._patience:
                raise TimeoutError
            await asyncio.sleep(pause)
            pause = min(longest, 2 * pause)
