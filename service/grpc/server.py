"""The gRPC server of an API worker: on the worker's event loop, with the same services as HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Any

import grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_SERVICE

from engine.addresses import address_text
from observability.logging import get_logger
from service.grpc.arrival import most_received
from service.grpc.call import Calls, Method
from service.grpc.health import HealthServicer
from service.grpc.methods import METHODS, SERVICE
from service.grpc.standard import (
    MOST_OPEN,
    SmallMessages,
    health_handlers,
    most_open,
    reflection_handlers,
)
from service.routes.route import RPC
from service.routes.tables import GRPC
from service.serving.access import Access
from service.serving.connection_limits import ConnectionLimits
from service.serving.limits import MOST_CONNECTIONS
from service.serving.services import Services
from service.settings import ServiceSettings

_IDENTITY_ENCODING_ONLY = 1
_STREAMS_PER_CONNECTION = 4096
# Clients may send keepalive pings this often: many do so every 10 s, and one may be a bit early.
LEAST_PING_SECONDS = 5.0
# Before the server stops, it takes the calls that have arrived, until none comes for this long.
_SECONDS_WITHOUT_A_CALL = 0.02
_MOST_SECONDS_TO_TAKE = 0.5

_log = get_logger()


class GrpcServer:
    """Call ``start`` once, then ``stop``, perhaps after ``send_away``."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._health = HealthServicer(lambda: services.health() == "ok", (SERVICE,))
        self._watch: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._server = grpc.aio.server(
            options=_options(services.settings),
            # Long-lived calls of the standard services do not count against the others.
            maximum_concurrent_rpcs=MOST_CONNECTIONS + 2 * MOST_OPEN,
        )
        calls = Calls(services)
        access = Access(services.keys, services.key_sources.look_early)
        messages = SmallMessages(most_received(services.settings.max_body_bytes))
        most = most_open(ConnectionLimits.of(services.settings).grpc)
        names = (SERVICE, HEALTH_SERVICE, REFLECTION_SERVICE)
        served = {
            SERVICE: {name: _handler(calls, name, method) for name, method in METHODS.items()},
            HEALTH_SERVICE: health_handlers(self._health, messages, most),
            REFLECTION_SERVICE: reflection_handlers(names, access, self._stopping, most),
        }
        GRPC.check_served(
            GRPC.named(f"{RPC} /{service}/{name}")
            for service, handlers in served.items()
            for name in handlers
        )
        self._server.add_generic_rpc_handlers(
            (
                *(grpc.method_handlers_generic_handler(*each) for each in served.items()),
                _EveryOther(calls),
            )
        )

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError."""
        where = address_text(host, port)
        try:
            bound: int = self._server.add_insecure_port(where)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {where} for gRPC: is the port in use?") from error
        await self._server.start()
        self._watch = asyncio.create_task(self._health.watch(), name="grpc-health")
        _log.info("grpc accepts", host=host, port=bound)
        return bound

    def send_away(self, timeout_seconds: float) -> None:
        """Accept no more connections or calls, so that clients make their next call to another
        server: otherwise they would use a connection for as long as it is open, for example
        because of one long call. Running calls may finish within ``timeout_seconds``; watchers get
        NOT_SERVING."""
        self._end_watches()
        self._leaving = asyncio.create_task(self._stop(timeout_seconds), name="grpc-send-away")

    async def stop(self, timeout_seconds: float) -> bool:
        """Stop accepting calls; running ones may finish within ``timeout_seconds``. False if some
        had to be cut off."""
        self._end_watches()
        begin = time.monotonic()
        await self._stop(timeout_seconds)
        if self._leaving is not None:
            await self._leaving  # has ended with the last call
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        return time.monotonic() - begin < timeout_seconds

    async def _stop(self, timeout_seconds: float) -> None:
        """The library cancels calls that wait to be taken, which clients do not retry. So first let
        our code refuse these, with a status that they do retry."""
        drain = self._services.drain
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOST_SECONDS_TO_TAKE):
                taken: int | None = None
                while taken != (taken := drain.in_flight + drain.answered):
                    await asyncio.sleep(_SECONDS_WITHOUT_A_CALL)
        await self._server.stop(timeout_seconds)

    def _end_watches(self) -> None:
        """End the streams that would last as long as the server."""
        self._health.close()
        self._stopping.set()


def _options(settings: ServiceSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", most_received(settings.max_body_bytes)),
        # The limit applies to incoming bytes, but decompression has none. With bandwidth probing, a
        # fast client could send megabytes per call before they are read.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ENCODING_ONLY),
        ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION),
        # One more is closed at once. An open one without a call, or without a preface, is soon
        # closed; its client connects again for its next call.
        ("grpc.max_allowed_incoming_connections", ConnectionLimits.of(settings).grpc),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.idle_timeout)),
        ("grpc.server_handshake_timeout_ms", _milliseconds(settings.receive_timeout)),
        # Two servers on one port would each get some of the calls. Workers of one server do; then
        # the supervisor has made sure that no other has the port.
        ("grpc.so_reuseport", int(settings.api_workers > 1)),
        # A caller whose machine is gone sends nothing; its blocks must be freed all the same.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        # Callers that wait long may send keepalive pings too. By default, more than one in five
        # minutes would close the connection, with all calls on it.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(LEAST_PING_SECONDS)),
    ]


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)


class _EveryOther:
    """Answers calls of methods that do not exist, so that they are counted like others."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def service(self, handler_call_details: Any) -> Any:
        asked = str(handler_call_details.method)

        async def answer(_requests: Any, context: Any) -> None:
            await self._calls.refuse_unknown(context, asked)

        return grpc.stream_stream_rpc_method_handler(answer)


def _handler(calls: Calls, name: str, method: Method) -> Any:
    route = GRPC.named(f"{RPC} /{SERVICE}/{name}")

    async def answer(_requests: Any, context: Any) -> None:
        await calls.answer(context, route, method)

    return grpc.stream_stream_rpc_method_handler(answer)
