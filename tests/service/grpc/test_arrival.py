"""Messages of gRPC calls arrive within bounds of time and of memory for all of them together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from service.admission.drain import Drain
from service.errors import QuireError
from service.grpc import arrival
from service.grpc.arrival import Arrivals, most_received
from service.grpc.status import status_of
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import FREE_BYTES, UploadRoom

LIMIT = FREE_BYTES + 1000
COUNTED = most_received(LIMIT) - FREE_BYTES  # for each message that is slow to arrive
METHOD = "/test/Size"
ALONE = [("grpc.use_local_subchannel_pool", 1)]  # on a connection of this channel only


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "AT_ONCE_SECONDS", 0.1)


@asynccontextmanager
async def served(arrivals: Arrivals) -> AsyncIterator[str]:
    """The address of a server with a method that answers with the size of its message."""

    async def size(_requests: Any, context: Any) -> None:
        try:
            message = await arrivals.read(context, ANYBODY)
        except QuireError as error:
            status = status_of(error)
            await context.abort(status.code, status.message)
        else:
            await context.write(b"%d" % len(message))

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(size)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("test", {"Size": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@asynccontextmanager
async def calling(arrivals: Arrivals) -> AsyncIterator[Any]:
    async with served(arrivals) as target, grpc.aio.insecure_channel(target) as channel:
        yield channel.stream_stream(METHOD)


async def until_held(room: UploadRoom, size: int) -> None:
    async with asyncio.timeout(30):
        while room.held != size:
            await asyncio.sleep(0.005)


async def answer(call: Any, message: bytes) -> bytes:
    asked = call()
    await asked.write(message)
    await asked.done_writing()
    answered: bytes = await asked.read()
    return answered


async def test_calls_whose_messages_do_not_come_share_one_room() -> None:
    room = UploadRoom(2 * COUNTED)
    async with calling(Arrivals(LIMIT, 30.0, Drain(1.0), room)) as call:
        stalled = [call() for _ in range(2)]
        waiting = [asyncio.create_task(each.read()) for each in stalled]
        await until_held(room, 2 * COUNTED)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call().read()
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await answer(call, bytes(LIMIT)) == b"%d" % LIMIT  # what comes is let in
        await stalled[0].write(b"late")
        assert await waiting[0] == b"4"
        stalled[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until_held(room, 0)


async def test_more_calls_than_are_read_at_once_are_all_read() -> None:
    async with calling(Arrivals(LIMIT, 30.0, Drain(1.0), UploadRoom(10 * LIMIT))) as call:
        sizes = await asyncio.gather(*(answer(call, bytes(size)) for size in range(100)))
    assert sizes == [b"%d" % size for size in range(100)]


async def test_a_message_that_never_comes_ends_its_call() -> None:
    room = UploadRoom(LIMIT)
    async with calling(Arrivals(1024, 0.1, Drain(1.0), room)) as call:
        with pytest.raises(grpc.aio.AioRpcError, match="did not arrive") as refused:
            await call().read()
    assert refused.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_shutdown_does_not_wait_for_messages() -> None:
    room, drain = UploadRoom(LIMIT), Drain(600.0)
    async with calling(Arrivals(LIMIT, 600.0, drain, room)) as call:
        asked = call()
        reading = asyncio.create_task(asked.read())
        await until_held(room, COUNTED)
        drain.begin()
        with pytest.raises(grpc.aio.AioRpcError, match="shutting down") as refused:
            await reading
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_message_that_is_a_little_too_large_is_refused_for_that() -> None:
    async with calling(Arrivals(LIMIT, 30.0, Drain(1.0), UploadRoom(10 * LIMIT))) as call:
        with pytest.raises(grpc.aio.AioRpcError, match=f"at most {LIMIT} bytes") as refused:
            await answer(call, bytes(LIMIT + 1))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_calls_that_send_nothing_hold_up_those_of_their_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrival, "AT_ONCE_SECONDS", 1.0)
    room = UploadRoom(1000 * COUNTED)
    arrivals = Arrivals(LIMIT, 30.0, Drain(1.0), room)
    async with served(arrivals) as target, contextlib.AsyncExitStack() as stack:
        one, another = [
            (
                await stack.enter_async_context(grpc.aio.insecure_channel(target, options=ALONE))
            ).stream_stream(METHOD)
            for _ in range(2)
        ]
        silent = [one() for _ in range(160)]
        waiting = [asyncio.create_task(each.read()) for each in silent]
        async with asyncio.timeout(30):
            while arrivals._turns.waiting < 128:
                await asyncio.sleep(0.005)
        assert await answer(another, b"quick") == b"5"
        assert room.held <= 2 * 32 * COUNTED, "as many have had their turn"
        for each in silent:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert not arrivals._calls
