"""Granian inside this process: an ASGI app on an existing listening socket.

Granian's own servers either start a separate process for the app, and stop accepting as soon as
they are asked to stop, or (``granian.server.embed``) use a runtime that never notices a client that
stalls and then leaves: its response waits forever. Here the same worker runs on granian's
multi-threaded runtime, on our event loop, and stops on request; until then it accepts
connections, so that the app itself can reject requests with a reason. The worker, its scheduler and
its lifespan protocol are not public in granian: the version is pinned, and tests check what is
used.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from granian import _futures, _granian, asgi
from granian.constants import HTTPModes
from granian.http import HTTP1Settings, HTTP2Settings

from service.serving.limits import MOST_CONNECTIONS
from service.supervision.listener import BACKLOG

# The first is compiled and its stub declares other signatures; the others have no annotations.
_native: Any = _granian
_scheduling: Any = _futures
_asgi: Any = asgi

# The maximum size of a request's head in bytes, in either version of HTTP. HTTP/2 can refer to a
# header sent once thousands of times with one byte each; the limit applies to the expanded size.
MAX_HEAD_BYTES = 64 * 1024

_HTTP1 = HTTP1Settings(
    header_read_timeout=30_000,  # milliseconds
    # Buffered for a request waiting to be handled, and for a response waiting to be sent.
    max_buffer_size=MAX_HEAD_BYTES + 8192,
)
# Between workers, a client's whole head is in one header.
_HTTP1_UNIX = HTTP1Settings(header_read_timeout=30_000, max_buffer_size=2 * MAX_HEAD_BYTES)
_HTTP2 = HTTP2Settings(
    keep_alive_interval=20_000,  # milliseconds between pings while a stream is open
    keep_alive_timeout=20,  # seconds
    max_concurrent_streams=100,
    max_headers_size=MAX_HEAD_BYTES,
)


class HttpServer:
    """Serves ``app`` on ``listener`` from ``start`` to ``stop``, on the running event loop.

    ``start`` takes ownership of the listener, which is closed when the server stops.
    ``max_connections`` are accepted at once; more wait in the kernel. ``is_unix``: it is a unix
    socket.
    """

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        *,
        max_connections: int = MOST_CONNECTIONS,
        is_unix: bool = False,
    ) -> None:
        self._app = app
        self._max_connections = max_connections
        self._listener = listener
        self._is_unix = is_unix
        self._lifespan = _asgi.LifespanProtocol(app)
        self._signal = _native.WorkerSignal()
        self._stopped = asyncio.Event()
        self._worker: Any = None

    async def start(self) -> None:
        """Run the app's startup, then accept connections. Raises RuntimeError if the startup
        fails."""
        await self._lifespan.startup()
        if self._lifespan.interrupt:
            raise RuntimeError("the app did not start") from self._lifespan.exc
        loop = asyncio.get_running_loop()
        self._signal.add_cb(lambda: loop.call_soon_threadsafe(self._stopped.set))
        self._worker = _native.ASGIWorker(
            1,  # worker id
            (None, _native.SocketHolder(self._listener.detach(), self._is_unix, BACKLOG)),
            None,  # ipc
            1,  # runtime threads
            512,  # maximum threads for blocking work of the runtime itself
            1,  # Python threads
            30,  # seconds until an idle one ends
            self._max_connections,
            HTTPModes.auto,
            _HTTP1_UNIX if self._is_unix else _HTTP1,
            _HTTP2,
            True,  # websockets
            None,  # static files
            *(False, None, None, None, "tls1.3", None, [], False),  # TLS
            (None, None),  # metrics
        )
        handler = _scheduling._future_watcher_wrapper(
            _asgi._callback_wrapper(self._app, {}, self._lifespan.state)
        )
        scheduler = _scheduling._new_cbscheduler(loop, handler, impl_asyncio=True)
        serve = self._worker.serve_mtr_uds if self._is_unix else self._worker.serve_mtr
        serve(scheduler, loop, self._signal)

    async def shut_down_app(self) -> None:
        """Run the app's shutdown. The app itself ends the responses that it is still streaming."""
        await self._lifespan.shutdown()

    async def stop(self, timeout_seconds: float) -> bool:
        """Stop accepting and close connections as their responses end. False if some had not ended
        after ``timeout_seconds``."""
        self._signal.set()
        try:
            await asyncio.wait_for(self._stopped.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True
