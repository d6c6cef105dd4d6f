"""Server-sent events with as little as possible between generator and socket.

Sending a token costs about as much as generating it, so chunks go straight to the HTTP server's own
``send``, bypassing the framework's wrappers (they only watch for the response's start, which still
passes through them).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from litestar import Request, Response
from litestar.background_tasks import BackgroundTask, BackgroundTasks
from litestar.datastructures import Cookie
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send, TypeEncodersMap
from litestar.types.asgi_types import HTTPResponseBodyEvent

from service.errors import QuireError, SlowReaderError
from service.http.body import client_left
from service.http.scope import CUT_CLIENT, SERVER_SEND, exchange_in
from service.serving.exchange import CANCELLED_PATIENCE
from service.serving.stream import Outlet
from service.telemetry.record import Flush

# A comment, which every SSE parser skips (WHATWG HTML, 9.2.6).
KEEP_ALIVE = b": keep-alive\n\n"

# Granian's type for a write that did not have to wait.
_TAKEN_AT_ONCE = "PyEmptyAwaitable"

# Keep proxies from buffering or rewriting a stream that should arrive token by token.
_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class EventStream(Response[bytes]):
    """Sends each chunk of ``events`` in one write, until they end or the client leaves; then the
    generator is closed.

    A client that blocks one write for longer than ``patience`` seconds is cut off (before twice
    that time; sooner if an operator cancels the request), and ``cut`` is called with the reason.
    After ``keep_alive`` seconds without a write (at most half as long again), a comment is sent for
    proxies that close silent connections; 0: never. ``flush`` gains the time that writes wait.
    ``outlet``: that of ``events``, if they have one.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: dict[str, str],
        *,
        patience: float,
        keep_alive: float,
        cut: Callable[[QuireError], None],
        flush: Flush | None = None,
        outlet: Outlet[bytes] | None = None,
        media_type: str = "text/event-stream",
    ) -> None:
        super().__init__(
            content=b"",
            status_code=200,
            media_type=media_type,
            headers={**headers, **_HEADERS},
        )
        self._events = events
        self._patience = patience
        self._keep_alive = keep_alive
        self._cut = cut
        self._flush = flush or Flush()
        self._outlet = outlet or Outlet()

    def to_asgi_response(
        self,
        app: Any,
        request: Request[Any, Any, Any],
        *,
        background: BackgroundTask | BackgroundTasks | None = None,
        cookies: Iterable[Cookie] | None = None,
        encoded_headers: Iterable[tuple[bytes, bytes]] | None = None,
        headers: dict[str, str] | None = None,
        is_head_response: bool = False,
        media_type: str | None = None,
        status_code: int | None = None,
        type_encoders: TypeEncodersMap | None = None,
    ) -> ASGIResponse:
        merged = {**(headers or {}), **self.headers}
        return _EventStreamResponse(
            self._events,
            request.scope,
            merged,
            media_type=str(self.media_type),
            patience=self._patience,
            keep_alive=self._keep_alive,
            cut=self._cut,
            flush=self._flush,
            outlet=self._outlet,
        )


class _EventStreamResponse(ASGIResponse):
    _should_set_content_length = False

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        scope: Scope,
        headers: dict[str, Any],
        *,
        media_type: str,
        patience: float,
        keep_alive: float,
        cut: Callable[[QuireError], None],
        flush: Flush,
        outlet: Outlet[bytes],
    ) -> None:
        super().__init__(headers=headers, media_type=media_type, status_code=200)
        self._events = events
        self._scope = scope
        self._patience = patience
        self._keep_alive = keep_alive
        self._cut = cut
        self._flush = flush
        self._outlet = outlet
        self._waiting_since: float | None = None  # of the write that waits for the client
        self._last_begun = False
        self._comment: asyncio.Task[None] | None = None  # being sent: no other write may begin
        self._chunks: _Chunks

    async def send_body(self, send: Send, receive: Receive) -> None:
        server_send: Send = self._scope["state"].get(SERVER_SEND, send)
        self._chunks = _Chunks(server_send, self._drain)
        sending = asyncio.ensure_future(self._send_events(server_send))
        leaving = asyncio.ensure_future(client_left(receive))
        cancelled = asyncio.get_running_loop().create_future()
        exchange = exchange_in(self._scope)
        if exchange is not None:
            exchange.on_cancel = partial(_set, cancelled)
        try:
            await self._watch(sending, leaving, cancelled, server_send)
        finally:
            if exchange is not None:
                exchange.on_cancel = None
            tasks = [sending, leaving, *([] if self._comment is None else [self._comment])]
            for task in tasks:
                task.cancel()
            # The generator may be closed only after the sender has released it.
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self._events.aclose()
            # Both refer to this response; the garbage collector would have to find them.
            self._outlet.sender = None
            del self._chunks
        if isinstance(results[0], Exception):
            raise results[0]

    async def _watch(
        self,
        sending: asyncio.Future[None],
        leaving: asyncio.Future[None],
        cancelled: asyncio.Future[None],
        send: Send,
    ) -> None:
        """Return when the stream has ended, the client has left, or one write has been blocked too
        long, which is sooner if an operator has cancelled the request."""
        patience = self._patience
        awaited = {sending, leaving, cancelled}
        seen, since = 0, time.monotonic()  # writes begun, and the time of the last one
        while True:
            interval = min(patience, self._keep_alive or patience) / 2
            done, _ = await asyncio.wait(
                awaited, timeout=interval, return_when=asyncio.FIRST_COMPLETED
            )
            if sending in done or leaving in done:
                return
            if done:
                awaited.discard(cancelled)
                patience = min(patience, CANCELLED_PATIENCE)
            # Checking periodically costs nothing per token; reading the clock at each write would.
            now = time.monotonic()
            if self._waiting_since is not None:
                if now - self._waiting_since >= patience:
                    self._cut(SlowReaderError("The client did not read its stream."))
                    if cut_client := self._scope["state"].get(CUT_CLIENT):
                        cut_client()
                    return
            elif seen != self._chunks.writes:
                seen, since = self._chunks.writes, now
            elif self._keep_alive and not self._last_begun and now - since >= self._keep_alive:
                self._chunks.writes += 1
                self._chunks.blocked = True
                self._comment = asyncio.create_task(self._send_comment(send))
                seen, since = self._chunks.writes, now

    async def _send_comment(self, send: Send) -> None:
        await self._waited(send(_body(KEEP_ALIVE)))
        self._comment = None
        self._chunks.blocked = False

    async def _send_events(self, send: Send) -> None:
        chunks = self._chunks
        self._outlet.sender = chunks
        async for chunk in self._events:
            if not chunks.write(chunk):
                await chunks.drained()
        while self._comment is not None:  # the next may begin before this task runs again
            await self._comment
        self._last_begun = True
        await self._waited(send(_body(b"", more=False)))

    async def _drain(self) -> None:
        """Return when the last chunk has been taken."""
        chunks = self._chunks
        while self._comment is not None:  # the next may begin before this task runs again
            await self._comment
        if chunks.delayed:
            delayed, chunks.delayed = chunks.delayed, b""
            if chunks.write(delayed):
                return
        if chunks.begun is not None:
            await self._waited(chunks.take())

    async def _waited(self, write: Awaitable[None]) -> None:
        begin = self._waiting_since = self._flush.waiting_since = time.monotonic()
        try:
            await write
        finally:
            del write  # see ``service.http.door._message``
            self._waiting_since = None
            self._flush.waited(begin, time.monotonic())


class _Chunks:
    """Writes a stream's chunks, which are as many as its tokens: small, to be in few cache lines.
    ``blocked``: a comment is being sent; a chunk is ``delayed`` until then."""

    __slots__ = ("_at_once", "_send", "begun", "blocked", "delayed", "drained", "writes")

    def __init__(self, send: Any, drained: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._at_once: type | None = None  # the server's type for a write that need not be awaited
        self.begun: Awaitable[None] | None = None  # a write that was not taken at once
        self.blocked = False
        self.delayed = b""
        self.drained = drained
        self.writes = 0

    def write(self, chunk: bytes) -> bool:
        """Send a chunk; False: await ``drained`` before the next one."""
        if self.blocked:
            self.delayed = chunk
            return False
        self.writes += 1
        write = self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        # What has been taken at once need not be awaited, which saves time per token.
        if type(write) is self._at_once:
            return True
        if type(write).__name__ == _TAKEN_AT_ONCE:
            self._at_once = type(write)
            return True
        self.begun = write
        return False

    def take(self) -> Awaitable[None]:
        """Return the write that was not taken at once."""
        begun, self.begun = self.begun, None
        assert begun is not None
        return begun


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _body(data: bytes, *, more: bool = True) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": data, "more_body": more}
