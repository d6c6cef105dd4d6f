"""Starts Quire as a user would, and waits for what it says of itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
ADMIN_ACCEPTS = "admin API accepts"  # a line of the log
T = TypeVar("T")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(condition: Callable[[], T | None], seconds: float, what: str) -> T:
    """The first true value of ``condition``, asked again and again for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def descendants(pid: int) -> set[int]:
    """Process ids of all children, grandchildren, … of ``pid``."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found |= {int(child)} | descendants(int(child))
    return found


def command_of(pid: int) -> list[bytes]:
    """The words that started a process; none if it has ended meanwhile."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that hangs; it may be killed meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _processes(args: Sequence[str]) -> list[str]:
    """The arguments for the number of workers and engines that ``QUIRE_TEST_WORKERS`` and
    ``QUIRE_TEST_ENGINES`` request, unless the test says how many."""
    asked = {"--api-workers": "QUIRE_TEST_WORKERS", "--data-parallel-size": "QUIRE_TEST_ENGINES"}
    return [
        f"{flag}={os.environ[variable]}"
        for flag, variable in asked.items()
        if variable in os.environ and not any(word.startswith(flag) for word in args)
    ]


class QuireServer:
    """``with QuireServer("--max-num-seqs", "8") as server:`` runs ``quire serve``."""

    def __init__(self, *args: str, cwd: Path = ROOT) -> None:
        self.args = args
        self.cwd = cwd
        self.module = "service.cli"
        self.source: Path | None = None  # where modules are found before the checkout's
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._output = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> QuireServer:
        command = [sys.executable, "-P", "-m", self.module, "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self.args, *_processes(self.args)],
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            start_new_session=True,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        return self

    def _environment(self) -> dict[str, str]:
        own = {} if self.module == "service.cli" else {"PYTHONPATH": str(ROOT)}
        if self.source is not None:
            own = {"PYTHONPATH": f"{self.source}:{ROOT}"}
        # Its own files: what other servers have stored is not in its answers.
        state = tempfile.mkdtemp(prefix="server-", dir=os.environ.get("XDG_STATE_HOME"))
        if not any(word.startswith("simulated:") for word in self.args):
            # Less memory than by default, which a virtual machine's host may take longer to give
            # than all else takes at a start.
            own["QUIRE_NUM_KV_BLOCKS"] = "4096"
        return {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": state, **own}

    def wait_ready(self, seconds: float = 120) -> QuireServer:
        def ready() -> bool:
            assert self.process is not None
            self.output()
            if self.process.poll() is not None:
                raise RuntimeError(f"quire serve ended:\n{self.output()}")
            with suppress(OSError):
                return self.get("/health/ready")[0] == 200
            return False

        until(ready, seconds, "/health/ready")
        return self

    def output(self) -> str:
        """All that the server has printed so far (reading it keeps its pipe from filling)."""
        assert self.process is not None
        assert self.process.stdout is not None
        with suppress(BlockingIOError):
            while chunk := self.process.stdout.read(65536):
                self._output += chunk
        return self._output.decode(errors="replace")

    def log_lines(self) -> list[dict[str, Any]]:
        whole = self.output().rpartition("\n")[0]  # the last line may still be being written
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        status, reply = self.request("POST", path, json.dumps(body).encode(), headers)
        return status, json.loads(reply)

    def request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        request = urllib.request.Request(
            self.url + path,
            data=body,
            method=method,
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except TimeoutError as error:
            raise AssertionError(f"{method} {path}: no answer\n{self._stacks()}") from error

    def _stacks(self) -> str:
        """All that the server has printed, what each of its threads is doing at the end."""
        assert self.process is not None
        for pid in (self.process.pid, *descendants(self.process.pid)):
            # Another program would be ended by the signal.
            if any(word.startswith((b"service", b"engine")) for word in command_of(pid)):
                with suppress(OSError):
                    os.kill(pid, signal.SIGUSR1)
        with suppress(TimeoutError):
            until(lambda: "most recent call first" in self.output(), 5, "a stack")
        return self.output()

    def _metrics_page(self) -> str:
        """The page, from the admin port if the server has API keys."""
        status, page = self.get("/metrics")
        if status == 404:
            lines = (line for line in self.log_lines() if line["event"] == ADMIN_ACCEPTS)
            port = [line["port"] for line in lines][-1]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
                page = reply.read()
        return page.decode()

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name and labels as exposed (``name{a="b"}``)."""
        samples = {}
        for line in self._metrics_page().splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                samples[series] = float(value)
        return samples

    def total(self, name: str, **labels: str) -> float:
        """Sum of all samples of a metric whose labels include these."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for series, value in self.metrics().items()
            if series.split("{")[0] == name and all(label in series for label in wanted)
        )

    def terminate(self, seconds: float = 60) -> int:
        """SIGTERM to the supervisor; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait_exit(seconds)

    def kill(self) -> None:
        """SIGKILL to all its processes at once, as when a node loses power."""
        assert self.process is not None
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def wait_exit(self, seconds: float = 60) -> int:
        """The exit code, once the supervisor has ended."""
        assert self.process is not None
        until(
            lambda: (self.output(), self.process is None or self.process.poll() is not None)[1],
            seconds,
            "quire serve to end",
        )
        return int(self.process.returncode)

    def __enter__(self) -> QuireServer:
        return self.start().wait_ready()

    def __exit__(self, *exc: object) -> None:
        assert self.process is not None
        try:
            self.terminate()
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()


def engine_of(server: QuireServer, *, other_than: int = 0) -> int:
    """The process id of its engine."""

    def found() -> int | None:
        assert server.process is not None
        for pid in descendants(server.process.pid):
            if pid != other_than and b"-m\0engine\0" in b"\0".join(command_of(pid)):
                return pid
        return None

    return until(found, 60, "an engine")


def engines_of(server: QuireServer) -> list[int]:
    """The process ids of its engines."""
    assert server.process is not None
    pids = descendants(server.process.pid)
    return [pid for pid in sorted(pids) if b"-m\0engine\0" in b"\0".join(command_of(pid))]


def engine_sockets(server: QuireServer) -> list[str]:
    """The paths of the sockets of its engines, in the order of their indices."""
    words = [word for pid in engines_of(server) for word in command_of(pid)]
    return sorted({os.fsdecode(word[9:]) for word in words if word.startswith(b"--socket=")})


def workers_of(server: QuireServer) -> dict[int, int]:
    """The process ids of its workers by index; of several only."""
    assert server.process is not None
    found = {}
    for pid in descendants(server.process.pid):
        words = command_of(pid)
        if b"service.worker" in words:
            [index] = [word for word in words if word.startswith(b"--worker-index=")]
            found[int(index.partition(b"=")[2])] = pid
    return found
