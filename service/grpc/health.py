"""grpc.health.v1, open to all like /health: SERVING while the service is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

# Readiness also ends with the engine's silence, which triggers no event.
_LOOK_SECONDS: Final = 0.25


class HealthServicer:
    """The servicer of grpc.health.v1.Health. ``ready``: returns whether requests are accepted now.
    ``names``: the known services; the empty name is the server."""

    def __init__(self, ready: Callable[[], bool], names: tuple[str, ...]) -> None:
        self._ready = ready
        self._names = ("", *names)
        self._last = False
        self._closed = False
        self._changed = asyncio.Event()

    async def watch(self) -> None:
        """Notify watchers, until cancelled; one check for all of them."""
        while True:
            self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Send NOT_SERVING to watchers and end their calls."""
        self._closed = True
        self._changed.set()

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:  # noqa: N802
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._status()

    async def List(self, request: HealthListRequest, context: Any) -> HealthListResponse:  # noqa: N802
        return HealthListResponse(statuses=dict.fromkeys(self._names, self._status()))

    async def Watch(  # noqa: N802
        self, request: HealthCheckRequest, context: Any
    ) -> AsyncIterator[HealthCheckResponse]:
        if request.service not in self._names:
            # As the protocol requires: the service might be added later.
            yield HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        said = None
        while True:
            self._look()  # later changes are relative to what is sent here
            changed = self._changed
            if request.service in self._names:
                status = self._status()
                if status != said:
                    said = status
                    yield status
            if self._closed:
                return
            await changed.wait()

    def _status(self) -> HealthCheckResponse:
        serving = not self._closed and self._ready()
        return HealthCheckResponse(
            status=HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        )

    def _look(self) -> None:
        now = self._ready()
        if now != self._last:
            self._last = now
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
