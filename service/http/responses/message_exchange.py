"""Serves a WebSocket message as an HTTP request: converts the message to a body and the events to
messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from litestar.types import HTTPReceiveMessage, Message
from litestar.types.asgi_types import HTTPDisconnectEvent, HTTPRequestEvent

from service.http.responses.message import SocketMessage


class MessageAsBody:
    """An ASGI receive that returns a message as the body, then waits until the client leaves."""

    def __init__(self, message: SocketMessage, left: asyncio.Event) -> None:
        self._message: SocketMessage | None = message
        self._left = left

    async def receive(self) -> HTTPReceiveMessage:
        message, self._message = self._message, None
        if message is not None:
            body = message.take()
            return HTTPRequestEvent(type="http.request", body=body, more_body=False)
        await self._left.wait()
        return HTTPDisconnectEvent(type="http.disconnect")


class EventsAsMessages:
    """An ASGI send that converts a stream's events to messages. ``error``: the message for a
    response that is not a stream."""

    def __init__(self, say: Callable[[bytes], Any]) -> None:
        self.error: bytes | None = None
        self._say = say
        self._status = 500
        self._headers: dict[str, str] = {}
        self._rest = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            self._rest += message["body"]
            if self._headers.get("content-type", "").startswith("text/event-stream"):
                await self._say_events()
            elif not message["more_body"]:
                self.error = socket_error(self._status, self._rest, self._headers)

    async def _say_events(self) -> None:
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            data = event.partition(b"data: ")[2]
            if data and not event.startswith(b":"):
                await self._say(data)


_ERROR_HEADERS = ("retry-after", "x-request-id", "x-quire-reason")


def socket_error(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    """Return OpenAI's event for a request that failed before its response began."""
    error = msgspec.json.decode(body)["error"]
    told = {name: headers[name] for name in _ERROR_HEADERS if name in headers}
    return msgspec.json.encode(
        {
            "type": "error",
            "status": status,
            "error": {**error, "headers": told},
            "headers": told,
        }
    )
