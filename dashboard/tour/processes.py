"""The processes of the tour: a server with a simulated model, and a dashboard."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE
from dashboard.tour.caption import VARIABLE

KEYS = {"alice": "tour-alice", "bob": "tour-bob", "carol": "tour-carol"}
# What the person's own servers and dashboards are set to, keys among it, is not for the tour.
_SETTINGS_PREFIX = "QUIRE_"
_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1


class TourError(Exception):
    """The tour cannot continue; the message says why."""


def port_or_free(port: int) -> int:
    """Return ``port``, or a free one if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):  # taken, or more than a port can be
            with socket.socket() as other:
                other.bind(("127.0.0.1", 0))
                return int(other.getsockname()[1])
    return port


@dataclass
class TourProcesses:
    """Use as a context manager: what was started is stopped at the end. ``directory`` gets the
    logs and the caption. The admin API has no keys, so that every page can be read without one."""

    directory: Path
    model: str
    server_port: int
    admin_port: int
    dashboard_port: int
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _logs: list[IO[bytes]] = field(default_factory=list)

    @property
    def server_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def caption(self) -> Path:
        return self.directory / "caption.json"

    def __enter__(self) -> TourProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGINT)
        for process in reversed(self._running):
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()

    def start(self) -> None:
        """Start both and return when they answer. Raises TourError if one does not."""
        keys = [part for name, key in KEYS.items() for part in ("--api-key", f"{name}={key}")]
        server = self._start(
            "server",
            ["service.cli", "serve", self.model, "--port", str(self.server_port)],
            [
                *("--admin-port", str(self.admin_port), "--max-num-seqs", "48"),
                *("--served-model-name", "tour", "--drain-timeout", "1", *keys),
            ],
            {},
        )
        self._wait(server, f"{self.server_url}/health/ready", "server")
        dashboard = self._start(
            "dashboard",
            ["dashboard", "--url", self.server_url],
            ["--port", str(self.dashboard_port)],
            {
                SERVERS_VARIABLE: self.server_url,
                ADMIN_VARIABLE: f"http://127.0.0.1:{self.admin_port}",
                VARIABLE: str(self.caption),
            },
        )
        self._wait(dashboard, f"{self.dashboard_url}/_stcore/health", "dashboard")

    def kill_engine(self) -> int:
        """Kill the server's engine as a crash would. Returns the process id."""
        for pid in _descendants(self._running[0].pid):
            words = _command_of(pid)
            if b"engine" in words and b"-m" in words:
                os.kill(pid, signal.SIGKILL)
                return pid
        raise TourError("the server has no engine process")

    def _start(
        self, name: str, command: list[str], options: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        log = (self.directory / f"{name}.log").open("wb")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_SETTINGS_PREFIX)
        }
        self._logs.append(log)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command, *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**inherited, **environment},
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,  # Ctrl-C is for the tour, which ends them in order
        )
        self._running.append(process)
        return process

    def _wait(self, process: subprocess.Popen[bytes], url: str, name: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with suppress(httpx.HTTPError):
                if httpx.get(url, timeout=2.0).status_code == httpx.codes.OK:
                    return
            time.sleep(_POLL_SECONDS)
        tail = (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]
        raise TourError(f"The {name} did not start. The end of its log:\n{tail}")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _command_of(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []
