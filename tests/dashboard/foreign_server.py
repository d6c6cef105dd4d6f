"""An HTTP server with given answers: it plays servers that are not Quire, or are broken.

What Quire itself does is tested against Quire.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Reply = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One request, and the means to answer it in pieces."""

    protocol_version = "HTTP/1.1"
    server: _Server
    body: bytes

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def start(self, status: int, content_type: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def send(self, content: str) -> None:
        self.wfile.write(content.encode())
        self.wfile.flush()

    def answer(self, status: int, content: str, content_type: str = "application/json") -> None:
        self.start(status, content_type, len(content.encode()))
        self.send(content)

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        reply = self.server.replies.get(self.path)
        if reply is None:
            self.answer(404, "{}")
        else:
            reply(self)

    do_GET = do_POST = _handle  # noqa: N815  the names http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Exchange)
        self.requests: list[str] = []
        self.replies: dict[str, Reply] = {}
        self.connections: set[socket.socket] = set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: a client that leaves is part of the tests."""


class ForeignServer:
    """``replies``: what to do with a request, by path. ``requests``: what came."""

    def __init__(self) -> None:
        self._server = _Server(0)
        self.port = self._server.server_port
        self._serve()

    def _serve(self) -> None:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def replies(self) -> dict[str, Reply]:
        return self._server.replies

    @property
    def requests(self) -> list[str]:
        return self._server.requests

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def start_again(self) -> None:
        """On the same port, with the same replies."""
        replies = self._server.replies
        self._server = _Server(self.port)
        self._server.replies = replies
        self._serve()

    def __enter__(self) -> ForeignServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
