"""A worker's own socket, on which the other workers forward requests to it.

It is a file that only this server's user can open. Requests that arrive on it are always served
here and never forwarded again.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from observability.logging import get_logger
from service.http.admin.application import AdminApp
from service.http.forwarding import take_client
from service.http.peer_calls import PeerCalls
from service.http.scope import AsgiApp
from service.http.server import HttpServer
from service.serving.services import Services
from service.supervision.listener import BACKLOG

# Of all other workers together.
MOST_PEER_CONNECTIONS = 8192
ADMIN_PREFIX = "/admin/"

_log = get_logger()


class PeerApp:
    """Serves the requests of other workers: clients' and operators' that they pass on, and their
    own (``calls``)."""

    def __init__(self, app: AsgiApp, admin: AsgiApp | None, calls: PeerCalls) -> None:
        self._app = app
        self._admin = admin
        self._calls = calls

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        match scope["type"]:
            case "lifespan":  # of the applications, whose own servers start and stop them
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await send({"type": "lifespan.shutdown.complete"})
            case "http":
                await self._serve(scope, receive, send)
            case _:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": ""})

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if self._calls.has(scope["path"]):
            await self._calls.serve(scope, receive, send)
            return
        scope.setdefault("state", {})
        take_client(scope)
        app = self._app
        if self._admin is not None and scope["path"].startswith(ADMIN_PREFIX):
            app = self._admin
        await app(scope, receive, send)


def open_peer_socket(path: Path) -> socket.socket:
    """Return a listening socket at ``path``, mode 0600, in place of one that a killed worker left.
    Raises OSError."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Only this user can enter the directory, so no other connects before chmod.
        listener.bind(str(unfinished))
        os.chmod(unfinished, 0o600)
        listener.listen(BACKLOG)
        unfinished.rename(path)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class PeerServer:
    """Call ``start`` once, then ``stop``."""

    def __init__(self, app: PeerApp, path: Path) -> None:
        self._app = app
        self._path = path
        self._server: HttpServer | None = None

    async def start(self) -> None:
        """Accept connections. Raises OSError."""
        listener = open_peer_socket(self._path)
        self._server = HttpServer(
            self._app, listener, max_connections=MOST_PEER_CONNECTIONS, is_unix=True
        )
        await self._server.start()

    async def stop(self, timeout_seconds: float) -> bool:
        """Close connections as their answers end. False if some had not ended after
        ``timeout_seconds``."""
        self._path.unlink(missing_ok=True)
        if self._server is None:
            return True
        await self._server.shut_down_app()
        return await self._server.stop(timeout_seconds)


def peer_server(app: AsgiApp, admin: AdminApp | None, services: Services) -> PeerServer | None:
    """Return the server of this worker's socket; None if there are no other workers."""
    peers = services.peers
    if not peers:
        return None
    more = None if admin is None else admin.desk.whole.own.calls()
    path = peers.socket_of(peers.ids.worker)
    return PeerServer(PeerApp(app, admin, PeerCalls(services, more)), path)
