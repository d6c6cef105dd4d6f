"""grpc.health.v1 as its protocol has it, over a connection of gRPC's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server

from service.grpc.health import HealthServicer

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


@dataclass
class Health:
    servicer: HealthServicer
    stub: HealthStub
    ready: bool = False

    def watch(self, name: str) -> grpc.aio.UnaryStreamCall:
        return self.stub.Watch(HealthCheckRequest(service=name), timeout=30)


@pytest.fixture
async def health() -> AsyncIterator[Health]:
    """Of a server with one service, ``ours``."""
    servicer = HealthServicer(lambda: running.ready, ("ours",))
    server = grpc.aio.server()
    add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        running = Health(servicer, HealthStub(channel))
        watching = asyncio.create_task(servicer.watch())
        yield running
        watching.cancel()
    await server.stop(0)


@pytest.mark.parametrize(("ready", "status"), [(True, SERVING), (False, NOT_SERVING)])
async def test_a_check_says_whether_requests_are_taken_now(
    health: Health, ready: bool, status: int
) -> None:
    health.ready = ready
    for name in ("", "ours"):
        answer = await health.stub.Check(HealthCheckRequest(service=name))
        assert answer.status == status
    listed = (await health.stub.List(HealthListRequest())).statuses
    assert {name: listed[name].status for name in listed} == {"": status, "ours": status}


async def test_a_service_that_is_not_there_is_not_found_but_may_be_watched(
    health: Health,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health.stub.Check(HealthCheckRequest(service="theirs"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    watch = health.watch("theirs")
    assert (await watch.read()).status == UNKNOWN
    health.ready = True  # changes nothing for it
    ours = health.watch("ours")
    assert (await ours.read()).status == SERVING
    health.servicer.close()
    assert await watch.read() is grpc.aio.EOF


async def test_every_watcher_gets_each_change_once_and_the_end(health: Health) -> None:
    watches = [health.watch(name) for name in ("", "ours", "ours")]
    for ready, status in ((False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)):
        health.ready = ready
        assert [(await watch.read()).status for watch in watches] == [status] * 3
    health.ready = True
    assert [(await watch.read()).status for watch in watches] == [SERVING] * 3
    health.servicer.close()
    assert [(await watch.read()).status for watch in watches] == [NOT_SERVING] * 3
    assert [await watch.read() for watch in watches] == [grpc.aio.EOF] * 3


async def test_a_watcher_of_something_closed_is_notified_at_once(health: Health) -> None:
    health.ready = True
    health.servicer.close()
    watch = health.watch("")
    assert (await watch.read()).status == NOT_SERVING
    assert await watch.read() is grpc.aio.EOF
