"""What stays open of the standard services is bounded, and what comes there is checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from service.api_keys import api_keys
from service.grpc import standard
from service.grpc.health import HealthServicer
from service.grpc.standard import MOST_OPEN_OF_A_CONNECTION, Places, SmallMessages, most_open
from service.serving.access import Access
from service.serving.keys import KeyRing

LARGEST = 64 << 20
IN_THE_ROOM = 4  # bodies of that size in the room for them
ALONE = [("grpc.use_local_subchannel_pool", 1)]


@asynccontextmanager
async def served(handlers: dict[str, Any]) -> AsyncIterator[Callable[[], grpc.aio.Channel]]:
    """A server of these methods, and what makes one more connection to it."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncExitStack() as channels:

        def connect() -> grpc.aio.Channel:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=ALONE)
            channels.push_async_callback(channel.close)
            return channel

        yield connect
    await server.stop(0)


def holding(places: Places) -> dict[str, Any]:
    """A method that says a word when it has its place, and keeps it until it is asked again."""

    async def hold(_requests: Any, context: Any) -> None:
        async with places.taken(context):
            await context.write(b"taken")
            await context.read()

    return {"Hold": grpc.stream_stream_rpc_method_handler(hold)}


async def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    return refused.value.code(), refused.value.details() or ""


async def test_calls_are_bounded_on_a_connection_and_in_all_and_places_come_back() -> None:
    most = MOST_OPEN_OF_A_CONNECTION + 2
    async with served(holding(Places("test calls", most))) as connect:
        first, second = (connect().stream_stream("/test/Hold") for _ in range(2))
        held = [first() for _ in range(MOST_OPEN_OF_A_CONNECTION)]
        assert {await call.read() for call in held} == {b"taken"}
        code, details = await code_of(first())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"test calls are open: at most {MOST_OPEN_OF_A_CONNECTION} on this" in details
        others = [second(), second()]
        assert [await call.read() for call in others] == [b"taken"] * 2
        code, details = await code_of(second())
        assert (code, f"at most {most} in all" in details) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            True,
        )
        await held[0].done_writing()
        assert await held[0].read() is grpc.aio.EOF
        again = second()
        assert await again.read() == b"taken"


@pytest.mark.parametrize(("connections", "most"), [(1, 1), (224, 56), (1024, 256), (65_536, 256)])
def test_only_a_part_of_the_connections_can_be_held_open_by_calls(
    connections: int, most: int
) -> None:
    assert most_open(connections) == most


async def test_watches_that_would_take_a_connection_each_are_refused() -> None:
    """They need no key, and a connection with a watch is never idle."""
    health = HealthServicer(lambda: True, ())
    handlers = standard.health_handlers(health, SmallMessages(LARGEST), most_watches=2)
    async with served(handlers) as connect:
        held = []
        for _ in range(3):
            held.append(connect().stream_stream("/test/Watch")())
            with suppress(grpc.RpcError):  # the third may be refused before this
                await held[-1].write(HealthCheckRequest().SerializeToString())
        assert [HealthCheckResponse.FromString(await call.read()).status for call in held[:2]] == (
            [HealthCheckResponse.SERVING] * 2
        )
        code, details = await code_of(held[2])
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "at most 2 in all" in details


@pytest.fixture
async def check() -> AsyncIterator[Any]:
    """Health's Check as a method of bytes, of a server that is ready."""
    handlers = standard.health_handlers(
        HealthServicer(lambda: True, ()), SmallMessages(LARGEST), most_watches=8
    )
    async with served(handlers) as connect:
        yield connect().stream_stream("/test/Check")


async def test_a_check_is_answered_once_its_message_is_there(check: Any) -> None:
    call = check()
    await call.write(HealthCheckRequest().SerializeToString())
    answer = HealthCheckResponse.FromString(await call.read())
    assert answer.status == HealthCheckResponse.SERVING


async def test_a_check_with_no_message_or_another_one_is_refused(check: Any) -> None:
    empty, other = check(), check()
    await empty.done_writing()
    assert await code_of(empty) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "The call ended without a message.",
    )
    await other.write(b"\xff\xff")
    code, details = await code_of(other)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "HealthCheckRequest" in details


async def test_a_check_whose_message_never_comes_ends(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard, "MESSAGE_SECONDS", 0.05)
    async with asyncio.timeout(30):
        code, _ = await code_of(check())
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_large_check_is_refused(check: Any) -> None:
    call = check()
    await call.write(b"\0" * ((64 << 10) + 1))
    code, details = await code_of(call)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details == "The message may have at most 65536 bytes."


async def test_only_a_few_checks_may_send_slowly_and_the_quick_are_served(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each could send as much as the largest body, and needs no key."""
    monkeypatch.setattr(standard, "AT_ONCE_SECONDS", 0.05)
    slow = [check() for _ in range(IN_THE_ROOM + 4)]
    reading = [asyncio.ensure_future(call.read()) for call in slow]
    async with asyncio.timeout(30):
        while sum(each.done() for each in reading) < 4:
            await asyncio.wait(
                [each for each in reading if not each.done()], return_when=asyncio.FIRST_COMPLETED
            )
    refused = [each.exception() for each in reading if each.done()]
    assert len(refused) == 4
    for error in refused:
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    quick = check()
    await quick.write(HealthCheckRequest().SerializeToString())
    assert await quick.read()
    for call in slow:
        call.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def listed(call: Any) -> set[str]:
    await call.write(ServerReflectionRequest(list_services="").SerializeToString())
    answer = ServerReflectionResponse.FromString(await call.read())
    return {service.name for service in answer.list_services_response.service}


async def test_a_malformed_reflection_message_is_refused_in_a_sentence() -> None:
    handlers = standard.reflection_handlers(
        ("grpc.health.v1.Health",), Access(KeyRing([])), asyncio.Event(), 8
    )
    async with served(handlers) as connect:
        call = connect().stream_stream("/test/ServerReflectionInfo")()
        assert await listed(call) == {"grpc.health.v1.Health"}
        await call.write(b"\xff\xff\xff")
        assert await code_of(call) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "The message is not a ServerReflectionRequest.",
        )


async def test_reflection_lists_the_services_for_clients_with_a_key() -> None:
    handlers = standard.reflection_handlers(
        ("grpc.health.v1.Health",), Access(KeyRing(api_keys(["key"]))), asyncio.Event(), 8
    )
    async with served(handlers) as connect:
        ask = connect().stream_stream("/test/ServerReflectionInfo")
        for metadata in ((), (("x-api-key", "wrong"),), (("authorization", "key"),)):
            code, _ = await code_of(ask(metadata=metadata))
            assert code is grpc.StatusCode.UNAUTHENTICATED
        for metadata in ((("x-api-key", "key"),), (("authorization", "Bearer key"),)):
            assert await listed(ask(metadata=metadata)) == {"grpc.health.v1.Health"}
