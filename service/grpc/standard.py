"""The standard services besides ours: grpc.health.v1, open to all like /health, and reflection,
which requires a key if keys are set.

Anyone who can connect can open such calls, so long-lived ones are limited separately: they do not
count against quire.v1.Quire's limit. Every method is registered as one of streams, because then our
code runs before the call's message has arrived, which may never happen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthListRequest
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from service.errors import OverloadedError, QuireError
from service.grpc.arrival import AT_ONCE_SECONDS
from service.grpc.health import HealthServicer
from service.grpc.status import status_of
from service.routes.route import RPC
from service.routes.tables import GRPC
from service.serving.access import Access
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import UploadRoom

_T = TypeVar("_T")

# For watches, and likewise for reflection's streams. Each may hold a connection open, so at most
# a part of the connections that gRPC may have.
MOST_OPEN: Final = 256
PART_OF_CONNECTIONS: Final = 4
MOST_OPEN_OF_A_CONNECTION: Final = 16
_REFLECTION: Final = GRPC.named(
    f"{RPC} /grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
)
# For the message of a unary call.
MESSAGE_SECONDS: Final = 10.0
_CHECK: Final = GRPC.named(f"{RPC} /grpc.health.v1.Health/Check")
_MOST_BYTES: Final = _CHECK.body.most_bytes(0)


def most_open(connections: int) -> int:
    """Return how many calls of a kind may be open if gRPC may have this many ``connections``."""
    return max(1, min(MOST_OPEN, connections // PART_OF_CONNECTIONS))


class Places:
    """Limits how many calls of one kind may be open at once, in total and per connection."""

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self._open: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def taken(self, context: Any) -> AsyncIterator[None]:
        """End the call with RESOURCE_EXHAUSTED if there is no place."""
        peer = context.peer()
        if self._open[peer] >= MOST_OPEN_OF_A_CONNECTION:
            await self._refuse(context, f"{MOST_OPEN_OF_A_CONNECTION} on this connection")
        if self._open.total() >= self._most:
            await self._refuse(context, f"{self._most} in all")
        self._open[peer] += 1
        try:
            yield
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]

    async def _refuse(self, context: Any, bound: str) -> None:
        if not self._open[context.peer()]:
            del self._open[context.peer()]
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"Too many {self._what} are open: at most {bound}. Close one, or try again later.",
        )


def health_handlers(
    health: HealthServicer, messages: SmallMessages, most_watches: int
) -> dict[str, Any]:
    """Return the methods of grpc.health.v1.Health, by name."""
    watches = Places("health watches", most_watches)

    async def check(_requests: Any, context: Any) -> None:
        request = await messages.read(context, HealthCheckRequest)
        await context.write((await health.Check(request, context)).SerializeToString())

    async def listed(_requests: Any, context: Any) -> None:
        request = await messages.read(context, HealthListRequest)
        await context.write((await health.List(request, context)).SerializeToString())

    async def watch(_requests: Any, context: Any) -> None:
        async with watches.taken(context):
            request = await messages.read(context, HealthCheckRequest)
            async for answer in health.Watch(request, context):
                await context.write(answer.SerializeToString())

    handlers = {"Check": check, "List": listed, "Watch": watch}
    return {name: grpc.stream_stream_rpc_method_handler(each) for name, each in handlers.items()}


def reflection_handlers(
    services: tuple[str, ...], access: Access, stopping: asyncio.Event, most_streams: int
) -> dict[str, Any]:
    """Return the one method of grpc.reflection.v1alpha.ServerReflection, by name. Its streams end
    when the server is ``stopping``."""
    servicer = reflection.aio.ReflectionServicer(services)
    streams = Places("reflection streams", most_streams)

    async def info(requests: Any, context: Any) -> AsyncIterator[ServerReflectionResponse]:
        try:
            given = dict(context.invocation_metadata() or ())
            key = _bytes(given.get("authorization")), _bytes(given.get("x-api-key"))
            await access.check(_REFLECTION, *key)
        except QuireError as error:
            await _abort(context, error)
        async with streams.taken(context):
            asked = until(stopping, _parsed(requests))
            try:
                async for answer in servicer.ServerReflectionInfo(asked, context):
                    yield answer
            except DecodeError:
                await _refuse_malformed(context, ServerReflectionRequest)

    # gRPC would log a traceback for a malformed message, and answer with the exception.
    handler = grpc.stream_stream_rpc_method_handler(
        info, response_serializer=ServerReflectionResponse.SerializeToString
    )
    return {"ServerReflectionInfo": handler}


async def _parsed(messages: AsyncIterator[bytes]) -> AsyncIterator[ServerReflectionRequest]:
    """Raises DecodeError."""
    async for message in messages:
        yield ServerReflectionRequest.FromString(message)


async def until(stopping: asyncio.Event, requests: AsyncIterator[_T]) -> AsyncIterator[_T]:
    """Yield ``requests`` until there are no more or the server is ``stopping``."""
    stop = asyncio.ensure_future(stopping.wait())
    coming: asyncio.Future[_T] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(anext(requests))
            await asyncio.wait({coming, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return
            try:
                request = coming.result()
            except StopAsyncIteration:
                return
            yield request
    finally:
        stop.cancel()
        if coming is not None:
            coming.cancel()


async def _refuse_malformed(context: Any, kind: type[Message]) -> None:
    await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT, f"The message is not a {kind.DESCRIPTOR.name}."
    )


async def _abort(context: Any, error: QuireError) -> None:
    status = status_of(error)
    await context.abort(status.code, status.message, status.trailing)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


class SmallMessages:
    """Reads the one message of a call that anyone may open. gRPC keeps what has arrived of a
    message and has one bound for all methods, ``largest``: a message that does not come at once
    counts as that many bytes, so that only a few can be on their way."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._room = UploadRoom.for_bodies(largest)

    async def read(self, context: Any, kind: type[Message]) -> Any:
        """Return the message; end the call if there is none, it is too large, not of this kind, or
        comes too slowly."""
        data: Any = None
        try:
            async with asyncio.timeout(MESSAGE_SECONDS):
                data = await self._arrived(context)
        except OverloadedError as error:
            await _abort(context, error)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"The call sent no message within {MESSAGE_SECONDS:g} seconds.",
            )
        if data is grpc.aio.EOF:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "The call ended without a message."
            )
        if len(data) > _MOST_BYTES:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"The message may have at most {_MOST_BYTES} bytes.",
            )
        try:
            return kind.FromString(data)
        except DecodeError:
            await _refuse_malformed(context, kind)

    async def _arrived(self, context: Any) -> Any:
        """Raises OverloadedError."""
        reading = asyncio.ensure_future(context.read())
        try:
            with self._room.arriving(ANYBODY) as gained:
                await asyncio.wait({reading}, timeout=AT_ONCE_SECONDS)
                if not reading.done():
                    gained(self._largest)
                return await reading
        finally:
            reading.cancel()
