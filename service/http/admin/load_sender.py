"""Sends a load run's requests through the public application, without a connection."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from typing import Any

from observability.catalogue import LOAD_TEST_KEY
from service.admin.load import Send
from service.http.scope import CALLER, EXCHANGE, AsgiApp
from service.serving.exchange import Exchange
from service.telemetry.record import RequestRecord
from service.tenants.caller import Caller

_PATH = "/v1/chat/completions"

LOAD_CALLER = Caller(
    owner=hashlib.sha256(LOAD_TEST_KEY.encode()).hexdigest(),
    alias=LOAD_TEST_KEY,
    shares=True,
    may_hurry=False,
)


def sender(app: AsgiApp) -> Send:
    """Return what serves a body as a chat request of ``LOAD_CALLER`` and returns its record."""
    numbers = itertools.count(1)

    async def send(body: bytes) -> RequestRecord | None:
        scope = _scope(body, next(numbers))
        left = asyncio.Event()
        unread = [body]

        async def receive() -> dict[str, Any]:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def discard(_message: Any) -> None:
            pass

        try:
            await app(scope, receive, discard)
        finally:
            left.set()
        exchange: Exchange | None = scope["state"].get(EXCHANGE)
        return None if exchange is None else exchange.record

    return send


def _scope(body: bytes, number: int) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": _PATH,
        "raw_path": _PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"user-agent", LOAD_TEST_KEY.encode()),
        ],
        "client": (LOAD_TEST_KEY, number),
        "server": ("localhost", 0),
        "state": {CALLER: LOAD_CALLER},
    }
