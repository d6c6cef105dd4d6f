"""A forwarding server between an agent and Quire: it sees every request, whatever its path."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"}


class Seen(NamedTuple):
    method: str
    path: str  # without its query
    status: int


class Witness(ThreadingHTTPServer):
    """``seen``: what was asked, in order of the answers."""

    daemon_threads = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarder)
        self.upstream = upstream
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Forwarder(BaseHTTPRequestHandler):
    server: Witness

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        reply = upstream.getresponse()
        self.server.seen.append(Seen(self.command, self.path.partition("?")[0], reply.status))
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.end_headers()  # HTTP/1.0: the answer ends with the connection
        while piece := reply.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()
        upstream.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = forward  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Tests look at ``seen``."""


@contextmanager
def witness(upstream: int) -> Iterator[Witness]:
    """``upstream``: the server's port."""
    with Witness(upstream) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
