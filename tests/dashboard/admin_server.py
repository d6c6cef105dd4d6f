"""A small admin API for tests of the dashboard's own behaviour; figures are tested with Quire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from observability.admin_api import (
    Condition,
    Frame,
    LoadReport,
    LoadRun,
    Overview,
    Verdict,
    Window,
)

KEY, READ_KEY = "test-operate", "test-read"


def overview(**changed: Any) -> Overview:
    figures = Overview(
        time=1000.0,
        server="here:1",
        version="1",
        model="m",
        models=("m",),
        state="ok",
        verdict=Verdict(Condition.HEALTHY, "Healthy."),
        uptime=10.0,
        running=3,
        max_running=8,
        waiting=0,
        max_waiting=8,
        waiting_by_reason={},
        oldest_waiting=0.0,
        predicted_wait=None,
        silence=0.0,
        longest_gap=0.0,
        kv_blocks_active=1,
        kv_blocks_cached=1,
        kv_blocks_free=2,
        block_size=16,
        minute=Window(seconds=60.0),
        five_minutes=Window(seconds=300.0),
        slo={"ttft": 2.0, "itl": 0.1},
        parts={},
    )
    return msgspec.structs.replace(figures, **changed)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AdminServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        scope = {KEY: "operate", READ_KEY: "read"}.get(key)
        if refusals := self.server.refusals.get(path):
            self._answer(refusals.pop(0), b'{"detail": "Not now."}')
        elif scope is None:
            self._answer(401, b'{"detail": "The admin key is wrong."}')
        elif path == "/admin/v1/overview":
            self._answer(200, msgspec.json.encode(overview()), scope)
        elif path == "/admin/v1/usage":
            self._answer(200, b'{"rows": []}')
        elif path == "/admin/v1/load":
            self._load()
        elif path == "/admin/v1/series":
            self._answer(200, b'{"start": 1.0, "step": 1.0, "values": {}, "marks": []}')
        elif path.startswith("/admin/v1/kv") and "at=404" not in self.path:
            asked = self.path.removeprefix("/admin/v1/")
            self._answer(200, msgspec.json.encode({"asked": asked}))
        elif path == "/admin/v1/feed":
            self._feed()
        else:
            self._answer(404, b"not JSON")

    def _answer(self, status: int, body: bytes, scope: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("quire-admin-scope", scope or "read")
        self.end_headers()
        self.wfile.write(body)

    def _load(self) -> None:
        """A run is as it was ordered; a second one is refused."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        run = self.server.load
        if self.command == "POST" and run is not None and run.state == "running":
            self._answer(409, b'{"detail": "A load run is in progress."}')
            return
        if self.command == "POST":
            order = {**msgspec.json.decode(body), "started": 1000.0, "state": "running"}
            run = msgspec.convert(order, LoadRun)
        elif self.command == "DELETE" and run is not None:
            run = msgspec.structs.replace(run, state="stopped")
        self.server.load = run
        report = LoadReport(run=run, profiles={"chat": "short questions"})
        self._answer(200, msgspec.json.encode(report if self.command == "GET" else run))

    def _feed(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        frame = msgspec.json.encode(Frame(overview=overview()))
        self.wfile.write(b": hello\n\n")
        # In two pieces, as a network may deliver it.
        self.wfile.write(b"data: " + frame[:40])
        self.wfile.flush()
        self.wfile.write(frame[40:] + b"\n\n")
        if self.path.endswith("?kv=1"):
            self.wfile.write(b'data: {"kv":{"blocks":4}}\n\n')
        self.wfile.flush()
        self.server.over.wait(60)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class AdminServer(ThreadingHTTPServer):
    """``asked``: the paths of all requests. ``over``: ends the feeds when it is set. ``load``: the
    last load run."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.over = threading.Event()
        self.load: LoadRun | None = None
        self.refusals: dict[str, list[int]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def admin_server() -> Iterator[AdminServer]:
    server = AdminServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
