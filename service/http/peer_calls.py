"""What workers ask each other for themselves: to abort a call, and for a response that is kept by
the worker that ran it but is not stored. Whoever asks has checked the key; the owner is its digest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from observability.logging import get_logger
from service.errors import NotFoundError
from service.http.responses.lifecycle import ResponseLifecycle
from service.http.responses.lookup import ResponseLookup
from service.peers.requests import ABORT, RESPONSE, PeerQuestion
from service.serving.services import Services

_MOST_BYTES = 4096
_log = get_logger()


class PeerCalls:
    """``services``: of this worker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._calls: dict[str, Callable[[PeerQuestion], Awaitable[bytes]]] = {
            ABORT: self._abort,
            RESPONSE: self._response,
        }

    def has(self, path: str) -> bool:
        return path in self._calls

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer with 200, or 404 for what is not there."""
        try:
            wanted = msgspec.msgpack.decode(await _body(receive), type=PeerQuestion)
            status, body = 200, await self._calls[scope["path"]](wanted)
        except NotFoundError:
            status, body = 404, b""
        except Exception:
            _log.exception("failed to answer another worker", path=scope["path"])
            status, body = 500, b""
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _abort(self, wanted: PeerQuestion) -> bytes:
        self._services.running.abort(wanted.id, wanted.owner)
        return b""

    async def _response(self, wanted: PeerQuestion) -> bytes:
        services = self._services
        run = ResponseLookup(services.store, services.runs, wanted.owner).run(wanted.id)
        if run is None or not isinstance(run.subject, ResponseLifecycle):
            raise NotFoundError("No such response runs here.")
        return msgspec.msgpack.encode(run.subject.record)


async def _body(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise EOFError
        body += event["body"]
        if len(body) > _MOST_BYTES:
            raise ValueError("a request of another worker that is too long")
        if not event["more_body"]:
            return body
