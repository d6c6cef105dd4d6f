"""The admin API's listener, in the same process and on the same event loop as the public one."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from observability.logging import get_logger
from service.http.admin.application import AdminApp
from service.http.connections import Connections
from service.http.server import HttpServer
from service.supervision.listener import ServerAddress

_log = get_logger()


class AdminServer:
    """Call ``start`` once, then ``stop``. ``listener`` is closed by ``stop``."""

    def __init__(self, app: AdminApp, listener: socket.socket) -> None:
        self._address = ServerAddress.of(listener)
        self._connections: Connections = app.state.connections
        self._server = HttpServer(app, listener, max_connections=self._connections.most)
        self._idle: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections."""
        await self._server.start()
        self._idle = asyncio.create_task(
            self._connections.watch(self._address.port), name="idle-admin-connections"
        )
        _log.info("admin API accepts", host=self._address.host, port=self._address.port)

    async def stop(self, timeout_seconds: float) -> bool:
        """End the feeds and close connections as their answers end. False if some had not ended
        after ``timeout_seconds``."""
        if self._idle is not None:
            self._idle.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._idle
        await self._server.shut_down_app()
        return await self._server.stop(timeout_seconds)
