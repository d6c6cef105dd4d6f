"""Passes a request on to the API worker that has what it names, and the answer back, unchanged.

The owner checks the key, counts the request and logs it, as if the client were connected to it.
Here the key is checked too, for its share of what is forwarded (``service.peers.peers``); the
request is counted here only if that fails.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from litestar.types import Receive, Scope, Send

from observability.logging import get_logger
from service.admission.drain import Drain
from service.errors import QuireError, WorkerLostError
from service.http.body import client_left
from service.http.scope import ASKED_HEAD, CUT_CLIENT, FORWARDED, SERVER_SEND
from service.peers.asking import (
    HOP_BY_HOP,
    HeaderPairs,
    PeerAnswer,
    PeerConnection,
    PeerLostError,
    PeerUnreachableError,
)
from service.peers.peers import Peers
from service.routes.route import LEAD, RouteRow
from service.wire.error_shapes import shape_for

# Says who the client is: its port, how it connected, its address.
CLIENT_HEADER: Final = b"x-quire-forwarded-client"
# All of a client's headers: a request may have as many as the HTTP server accepts.
HEADERS_HEADER: Final = b"x-quire-forwarded-headers"
_EVENTS = b"text/event-stream"

_log = get_logger()


class Forwarding:
    """``drain`` counts the requests being forwarded."""

    def __init__(self, peers: Peers, drain: Drain) -> None:
        self._peers = peers
        self._drain = drain

    def owner(self, route: RouteRow, scope: Scope) -> int | None:
        """Return the worker that has what a request names; None: it is served here."""
        if not route.live_id or not self._peers or FORWARDED in scope["state"]:
            return None
        if route.live_id == LEAD:
            return None if self._peers.leads else self._peers.lead
        parameters: dict[str, Any] = scope["path_params"]
        return self._peers.owner_of(str(parameters[route.live_id]))

    async def forward(
        self,
        worker: int,
        scope: Scope,
        receive: Receive,
        *,
        patience: float,
        owner: str = "",
        body: bytes = b"",
        send: Send | None = None,
    ) -> bool:
        """Serve a request by asking a worker. ``patience``: seconds that the client may block one
        write. ``owner``: see ``Peers.place``. ``send``: None for the server's own, which bypasses
        all layers. Return False if the worker cannot be reached: only the store may have what it
        had. Raises OverloadedError, or WorkerLostError if it ends before it has answered."""
        self._drain.enter()
        try:
            with self._peers.place(owner):
                async with self._peers.connected(worker) as connection:
                    await _Passage(scope, receive, patience, send).serve(connection, body)
        except PeerUnreachableError as error:
            _log.warning("a worker cannot be reached", worker=worker, error=str(error))
            return False
        finally:
            self._drain.leave()
        return True


class _Passage:
    """One request, and its answer on the way back."""

    def __init__(self, scope: Scope, receive: Receive, patience: float, send: Send | None) -> None:
        state: dict[str, Any] = scope["state"]
        head_send: Send | None = state.get(ASKED_HEAD)
        self._method = "HEAD" if head_send is not None else str(scope.get("method"))
        self._send: Send = send or head_send or state[SERVER_SEND]
        self._scope = scope
        self._receive = receive
        self._patience = patience

    async def serve(self, connection: PeerConnection, body: bytes) -> None:
        """Return when the answer has been sent or the client has left; its connection to the owner
        is then closed."""
        passing = asyncio.ensure_future(self._pass(connection, body))
        leaving = asyncio.ensure_future(client_left(self._receive))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            passing.cancel()
            leaving.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)

    async def _pass(self, connection: PeerConnection, body: bytes) -> None:
        try:
            answer = await connection.ask(
                self._method, _target(self._scope), request_headers(self._scope), body
            )
        except PeerLostError as error:
            raise WorkerLostError(
                f"The API worker that has what this request names did not answer: {error}. "
                "Retry; what was stored is available from any worker."
            ) from error
        headers = [pair for pair in answer.headers if pair[0] not in HOP_BY_HOP]
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        is_ended = False
        try:
            async for piece in answer.pieces():
                # The end goes with the last piece: the kernel would delay a second write.
                is_ended = answer.is_whole
                await self._write(piece, more=not is_ended)
            if not is_ended:
                await self._write(b"", more=False)
        except PeerLostError as error:
            _log.warning("a worker ended in the middle of an answer", error=str(error))
            await self._end_lost(answer)
        except TimeoutError:
            self._cut()

    async def _write(self, piece: bytes, *, more: bool = True) -> None:
        """Raises TimeoutError for a client that does not read."""
        async with asyncio.timeout(self._patience):
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _end_lost(self, answer: PeerAnswer) -> None:
        """Tell the client that the rest will not come: by an event, or by cutting it off."""
        if not answer.header(b"content-type").startswith(_EVENTS):
            self._cut()
            return
        error: QuireError = WorkerLostError(
            "The API worker that ran this stream has ended; send the request again."
        )
        request_id = answer.header(b"x-request-id").decode("latin-1")
        told = shape_for(self._scope["path"])(error, request_id)
        try:
            await self._write(b"event: error\ndata: %b\n\n" % told)
            await self._write(b"", more=False)
        except TimeoutError:
            self._cut()

    def _cut(self) -> None:
        cut_client = self._scope["state"].get(CUT_CLIENT)
        if cut_client is not None:
            cut_client()


def _target(scope: Scope) -> bytes:
    query = scope["query_string"]
    path: bytes = scope["raw_path"]
    return b"%b?%b" % (path, query) if query else path


def request_headers(scope: Scope) -> HeaderPairs:
    """Return what says who the client is, and which headers it sent."""
    host, port = scope["client"] or ("", 0)
    who = b"%d %b %b" % (int(port), scope["scheme"].encode(), host.encode())
    left_out = {*HOP_BY_HOP, b"content-length", b"content-encoding"}  # a body is decompressed
    kept = [pair for pair in scope["headers"] if pair[0] not in left_out]
    packed = b"".join(b"%d %d %b%b " % (len(name), len(value), name, value) for name, value in kept)
    return [(CLIENT_HEADER, who), (HEADERS_HEADER, packed.rstrip())]


def _unpacked(packed: bytes) -> list[tuple[bytes, bytes]]:
    """Return what ``request_headers`` has packed. Raises ValueError for anything else."""
    headers = []
    while packed:
        name_size, value_size, rest = packed.split(b" ", 2)
        end = int(name_size) + int(value_size)
        headers.append((rest[: int(name_size)], rest[int(name_size) : end]))
        packed = rest[end + 1 :]
    return headers


def take_client(scope: Scope) -> None:
    """Put the client of a forwarded request into its scope, and the headers that it sent. Raises
    ValueError if one of them is missing."""
    sent = scope["headers"]
    (who,) = [value for name, value in sent if name == CLIENT_HEADER]
    (packed,) = [value for name, value in sent if name == HEADERS_HEADER]
    port, scheme, host = who.decode().split(" ", 2)
    scope["client"] = (host, int(port))
    scope["scheme"] = scheme
    length = [pair for pair in sent if pair[0] == b"content-length"]
    scope["headers"] = [*_unpacked(packed), *length]
    scope["state"][FORWARDED] = time.monotonic()
