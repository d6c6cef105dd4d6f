"""Answers the questions of other workers: to abort a call, and to return a response that is kept
by the worker that ran it but is not stored. The one that asks has checked the key; ``owner`` is its
digest. The admin API adds its questions (``service.admin.own_part``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from observability.logging import get_logger
from service.errors import NotFoundError
from service.http.responses.lifecycle import ResponseLifecycle
from service.http.responses.lookup import ResponseLookup
from service.peers.requests import ABORT, RESPONSE, PeerQuestion
from service.serving.services import Services

_MOST_BYTES = 1024 * 1024
_log = get_logger()

PeerCall = Callable[[bytes], Awaitable[bytes]]
"""Answers a question. Raises NotFoundError."""


class _GivenUpError(Exception):
    """The connection ended before the question did."""


class PeerCalls:
    """``services``: of this worker; ``more``: other questions that it answers, by path."""

    def __init__(self, services: Services, more: Mapping[str, PeerCall] | None = None) -> None:
        self._services = services
        self._calls: dict[str, PeerCall] = {
            ABORT: self._abort,
            RESPONSE: self._response,
            **(more or {}),
        }

    def has(self, path: str) -> bool:
        return path in self._calls

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer with 200, or 404 for what is not there; not at all if the worker that asked has
        given up."""
        try:
            status, body = 200, await self._calls[scope["path"]](await _body(receive))
        except _GivenUpError:
            return
        except NotFoundError:
            status, body = 404, b""
        except Exception:
            _log.exception("failed to answer another worker", path=scope["path"])
            status, body = 500, b""
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _abort(self, question: bytes) -> bytes:
        wanted = _decode(question)
        self._services.running.abort(wanted.id, wanted.owner)
        return b""

    async def _response(self, question: bytes) -> bytes:
        wanted, services = _decode(question), self._services
        run = ResponseLookup(services.store, services.runs, wanted.owner).run(wanted.id)
        if run is None or not isinstance(run.subject, ResponseLifecycle):
            raise NotFoundError("No such response runs here.")
        return msgspec.msgpack.encode(run.subject.shown)


def _decode(question: bytes) -> PeerQuestion:
    return msgspec.msgpack.decode(question, type=PeerQuestion)


async def _body(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise _GivenUpError
        body += event["body"]
        if len(body) > _MOST_BYTES:
            raise ValueError("a request of another worker that is too long")
        if not event["more_body"]:
            return body
