"""Server-sent events with as little between generator and socket as possible.

A token costs about as much to send as to make, so chunks go straight to the HTTP server's own
``send``, past the wrappers that the framework puts around it (they only watch for the response's
start, which still passes through them).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from litestar import Request, Response
from litestar.background_tasks import BackgroundTask, BackgroundTasks
from litestar.datastructures import Cookie
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send, TypeEncodersMap

from service.routes.body import client_left

SERVER_SEND = "quire_server_send"

# No proxy on the way may hold back or rewrite what is meant to arrive token by token.
_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class EventStream(Response[bytes]):
    """Sends what ``events`` yields, each chunk by one write, until it ends or the client leaves;
    then the generator is closed."""

    def __init__(self, events: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        super().__init__(
            content=b"",
            status_code=200,
            media_type="text/event-stream",
            headers={**headers, **_HEADERS},
        )
        self._events = events

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
        return _EventStreamResponse(self._events, request.scope, merged)


class _EventStreamResponse(ASGIResponse):
    _should_set_content_length = False

    def __init__(
        self, events: AsyncGenerator[bytes, None], scope: Scope, headers: dict[str, Any]
    ) -> None:
        super().__init__(headers=headers, media_type="text/event-stream", status_code=200)
        self._events = events
        self._scope = scope

    async def send_body(self, send: Send, receive: Receive) -> None:
        server_send: Send = self._scope["state"].get(SERVER_SEND, send)
        sending = asyncio.ensure_future(self._send_events(server_send))
        leaving = asyncio.ensure_future(client_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            # Only once the sender has let go of it may the generator be closed.
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send_events(self, send: Send) -> None:
        async for chunk in self._events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
