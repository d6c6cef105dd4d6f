"""The real engine process and the real worker, started on a tiny model for live tests."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float, what: str) -> T:
    """The first true value of ``condition``, asked again and again for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One child, its output in a file, ended by its own pid."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def output(self) -> str:
        """Whole lines: the last may be in the middle of being written while the process runs."""
        text = self.log.read_text(errors="replace")
        return text if self.popen.poll() is not None else text[: text.rfind("\n") + 1]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()


class RunningService:
    """``with RunningService(model, folder) as service``: an engine and a worker."""

    worker_module = "service.worker"
    names = "tiny"

    def __init__(
        self,
        model: Path,
        folder: Path,
        *,
        engine_args: tuple[str, ...] = (),
        worker_args: tuple[str, ...] = (),
    ) -> None:
        self.model = model
        self.folder = folder
        self.port = free_port()
        self.admin_port = free_port()
        self.engine_socket = folder / "engine.sock"
        self._engine_args = engine_args
        self._worker_args = worker_args
        self._started: list[Process] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_engine(self) -> Process:
        self.engine = Process(
            self.folder / "engine.log",
            *("-m", "engine", "--model", str(self.model), "--socket", str(self.engine_socket)),
            *("--load-format", "dummy", "--dtype", "float32", "--threads", "1"),
            *self._engine_args,
        )
        self._started.append(self.engine)
        return self.engine

    def start_worker(self) -> Process:
        self.worker = Process(
            self.folder / "worker.log",
            *("-m", self.worker_module, "--socket", str(self.engine_socket)),
            *("--model-dir", str(self.model), "--port", str(self.port)),
            *("--admin-port", str(self.admin_port)),
            *("--served-model-name", self.names, "--log-format", "json"),
            *("--engine-restart-timeout", "0"),  # only the test starts engines
            *self._worker_args,
        )
        self._started.append(self.worker)
        return self.worker

    def __enter__(self) -> RunningService:
        self.start_engine()
        self.start_worker()
        try:
            self.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.end()

    def wait_ready(self, seconds: float = 60) -> None:
        def ready() -> bool:
            for process in self._started:
                if process.popen.poll() is not None:
                    raise RuntimeError(f"{process.log.name}:\n{process.output()}")
            with suppress(OSError):
                return self.get("/health/ready")[0] == 200
            return False

        until(ready, seconds, "/health/ready")

    # --- speaking HTTP -----------------------------------------------------------------------

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float = 60,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, names, reply.read()
        finally:
            connection.close()

    def metrics_page(self) -> str:
        """The page of the admin port, where it is with and without API keys."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=60)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        status, _, body = self.exchange("GET", path, headers=headers)
        return status, body

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        status, _, reply = self.exchange("POST", path, json.dumps(body).encode())
        return status, json.loads(reply)

    def stream(self, path: str, body: Any) -> list[dict[str, Any]]:
        """All chunks of a stream that must end with [DONE]."""
        status, _, reply = self.exchange("POST", path, json.dumps(body).encode())
        assert status == 200, reply
        events = reply.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]

    def engine_counts(self) -> dict[str, float]:
        """Running and waiting sequences and active KV blocks, as /metrics shows them."""
        counts = {"running": 0.0, "waiting": 0.0, "active": 0.0}
        for line in self.metrics_page().splitlines():
            value = line.rsplit(" ", 1)[-1]
            if line.startswith("quire_sequences_running{"):
                counts["running"] += float(value)
            elif line.startswith("quire_sequences_waiting{"):
                counts["waiting"] += float(value)
            elif line.startswith("quire_kv_blocks{") and 'state="active"' in line:
                counts["active"] += float(value)
        return counts

    def wait_idle(self, seconds: float = 15) -> None:
        """Until the engine holds nothing of any request."""
        until(lambda: not any(self.engine_counts().values()), seconds, "an idle engine")
