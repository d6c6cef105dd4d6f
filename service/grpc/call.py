"""One RPC from its first byte to its status, as one exchange, like an HTTP request.

Every method is registered as one of streams of bytes, which on the wire is the same as one message
each way. So the exchange begins with the call, and an error in its message (too large, invalid) is
counted and reported like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import grpc

from engine.addresses import plain_address
from observability.logging import get_logger
from observability.outcomes import NO_ROUTE
from service.errors import (
    ClientGoneError,
    DeadlineError,
    InternalError,
    MethodNotAllowedError,
    QuireError,
    SlowReaderError,
)
from service.generation.request import Generation
from service.grpc.arrival import Arrivals, deadline_is_over
from service.grpc.status import Metadata, status_of
from service.routes.route import RouteRow
from service.serving.access import Access
from service.serving.client import Client
from service.serving.exchange import CANCELLED_PATIENCE, Exchange
from service.serving.services import Services
from service.serving.stream import AnswerStream, stream_events
from service.serving.unrouted import MOST_PATH_CHARS, begin_unrouted
from service.telemetry.record import RequestRecord
from service.tenants.upload_room import UploadRoom

# For the status of a call whose client does not read.
_STATUS_SECONDS = 1.0

_log = get_logger()

Method = Callable[["Call", bytes], Awaitable[None]]


class MessageStream(AnswerStream[list[bytes]], Protocol):
    """``failure``: the error of a failed stream, after its end."""

    failure: QuireError | None


class Call:
    """A method's view of the call. ``owner``: the digest of the caller's key."""

    def __init__(
        self,
        context: Any,
        exchange: Exchange,
        services: Services,
        owner: str,
    ) -> None:
        self.exchange = exchange
        self.services = services
        self.owner = owner
        # A client that leaves cancels its call.
        self.client = Client(services, exchange)
        self._context = context
        self._begun = False

    async def send(self, message: bytes) -> None:
        """Return once the message is being sent. Raises SlowReaderError, ClientGoneError."""
        flush = self.exchange.record.flush
        begin = flush.waiting_since = time.monotonic()
        try:
            async with asyncio.timeout(self.exchange.patience) as limit:
                self.exchange.on_cancel = partial(_hurry, limit)
                if not self._begun:
                    # Not before there is an answer: a client that has received nothing may retry.
                    self._begun = True
                    await self._context.send_initial_metadata(_metadata(self.exchange))
                await self._context.write(message)
        except TimeoutError:
            raise SlowReaderError("The client did not read its stream.") from None
        except grpc.aio.InternalError:
            raise ClientGoneError("The client left.") from None
        finally:
            self.exchange.on_cancel = None
            flush.waited(begin, time.monotonic())

    async def stream(self, generation: Generation, events: MessageStream) -> None:
        """Send all of ``generation``'s output. Raises QuireError if it fails."""
        with self.services.running.holding(self.owner, generation):
            batches = stream_events(self.exchange, generation, events)
            async with contextlib.aclosing(batches):
                async for messages in batches:
                    for message in messages:
                        await self.send(message)
        if events.failure is not None:
            raise events.failure


def _hurry(limit: asyncio.Timeout) -> None:
    """Wait no longer than for a cancelled request."""
    if not limit.expired():
        soon = asyncio.get_running_loop().time() + CANCELLED_PATIENCE
        limit.reschedule(min(soon, limit.when() or soon))


class Calls:
    """Answers calls of every method of one service."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = Access(services.keys, services.key_sources.look_early)
        settings = services.settings
        limit = settings.max_body_bytes
        self._arrivals = Arrivals(
            limit, settings.receive_timeout, services.drain, UploadRoom.for_bodies(limit)
        )

    async def answer(self, context: Any, route: RouteRow, method: Method) -> None:
        services = self._services
        headers = _headers(context)
        exchange = Exchange(
            _new_record(
                services.ids.new("req_"), headers, context.peer(), route.path, route.counted
            ),
            services.telemetry,
            patience=services.settings.slow_reader_timeout,
            drain=services.drain,
            refuse_unknown=services.settings.unknown_fields == "refuse",
            exchanges=services.exchanges,
            metering=services.metering,
        )
        services.telemetry.request_started(exchange.record)
        services.drain.enter()
        try:
            failure = await self._attempt(context, headers, exchange, route, method)
            if failure is None:
                exchange.record.status, exchange.record.grpc_status = 200, 0
            else:
                await _refuse(context, exchange, failure)
        except asyncio.CancelledError:
            if deadline_is_over(context):
                self._note(exchange, _deadline_error())
            raise
        finally:
            exchange.close()

    async def refuse_unknown(self, context: Any, path: str) -> None:
        """End a call of a method that does not exist."""
        request_id = self._services.ids.new("req_")
        record = _new_record(request_id, _headers(context), context.peer(), "", NO_ROUTE)
        exchange = begin_unrouted(record, path, self._services.telemetry)
        error = MethodNotAllowedError(f"There is no method {path[:MOST_PATH_CHARS]}.")
        self._note(exchange, error)
        try:
            await _refuse(context, exchange, error)
        finally:
            exchange.close()

    async def _attempt(
        self,
        context: Any,
        headers: dict[str, bytes],
        exchange: Exchange,
        route: RouteRow,
        method: Method,
    ) -> QuireError | None:
        """Run the call and return its error, if any."""
        key = headers.get("authorization", b""), headers.get("x-api-key", b"")
        try:
            exchange.identify(await self._access.check(route, *key))
            seconds = context.time_remaining()
            if seconds is not None:
                exchange.deadline = time.monotonic() + seconds
            owner = exchange.caller.owner
            call = Call(context, exchange, self._services, owner)
            try:
                message = await self._arrivals.read(context, exchange.caller)
            finally:
                exchange.record.received_body()
            await method(call, message)
        except QuireError as error:
            failure = error
        except Exception:
            _log.exception("unexpected exception", path=exchange.record.http_route)
            failure = InternalError("The server had an error while processing the request.")
        else:
            return None
        if isinstance(failure, ClientGoneError) and deadline_is_over(context):
            failure = _deadline_error()
        failure = exchange.cancellation or failure
        self._note(exchange, failure)
        # gRPC leaves a reference cycle when a call ends, which would keep the frames of these
        # tracebacks, and the messages that they received, until the next garbage collection.
        failure.with_traceback(None)
        failure.__cause__ = failure.__context__ = None
        return failure

    def _note(self, exchange: Exchange, failure: QuireError) -> None:
        exchange.fail(failure)
        exchange.record.status = failure.status
        exchange.record.grpc_status = status_of(failure).number


async def _refuse(context: Any, exchange: Exchange, failure: QuireError) -> None:
    if exchange.generation is not None:
        exchange.generation.close()  # the status may have to wait for its reader
    status = status_of(failure)
    trailing = (*_metadata(exchange), *status.trailing)
    # A call whose client no longer reads ends with its connection.
    with contextlib.suppress(TimeoutError, grpc.aio.InternalError):
        async with asyncio.timeout(_STATUS_SECONDS):
            await context.abort(status.code, status.message, trailing)
    raise asyncio.CancelledError


def _deadline_error() -> DeadlineError:
    return DeadlineError("The deadline of the call has passed.")


def _metadata(exchange: Exchange) -> Metadata:
    # The other name of the request's id is for HTTP clients of one vendor.
    return tuple(item for item in exchange.headers.items() if item[0] != "request-id")


def _headers(context: Any) -> dict[str, bytes]:
    """Return the call's metadata; the first value of each key."""
    headers: dict[str, bytes] = {}
    for key, value in context.invocation_metadata() or ():
        headers.setdefault(key, value.encode() if isinstance(value, str) else value)
    return headers


def peer_address(peer: str) -> str | None:
    """Return the address in what gRPC calls a peer, such as ``ipv4:10.0.0.7:5012`` or
    ``ipv6:%5B::1%5D:5012``; None for one without."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    return plain_address(urllib.parse.unquote(rest).rpartition(":")[0].strip("[]")) or None


def _new_record(
    request_id: str, headers: dict[str, bytes], peer: str, path: str, route: str
) -> RequestRecord:
    def text(name: str) -> str | None:
        return headers.get(name, b"").decode("latin-1") or None

    return RequestRecord(
        request_id=request_id,
        route=route,
        http_method="POST",
        http_route=path,
        received_time=time.monotonic(),
        received_wall_ns=time.time_ns(),
        client_request_id=text("x-request-id"),
        traceparent=text("traceparent"),
        tracestate=text("tracestate"),
        client_address=peer_address(peer),
        user_agent=text("user-agent"),
        status=499,
        grpc_status=1,  # CANCELLED, unless a status is sent
    )
