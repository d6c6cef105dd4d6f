"""One API worker, started as the supervisor starts it, with no engine behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.listener import open_listening_socket
from tests.e2e.quire_server import QuireServer, until
from tests.service.tiny_checkpoint import write_tiny_checkpoint

# Twice what it takes on an idle machine, 1.9 to 2.3 s: half is SQLAlchemy and advanced-alchemy,
# which litestar imports where it finds them. A busy machine stretches processor time too.
START_SECONDS = 4.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


class WorkerProcess(QuireServer):
    """A worker on a socket that this process opened."""

    def start_worker(self, checkpoint: Path, directory: Path) -> None:
        with open_listening_socket("127.0.0.1", 0) as listener:
            self.port = listener.getsockname()[1]
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "service.worker", f"--listen-fd={listener.fileno()}"),
                    *(f"--socket={directory / 'engine.sock'}", f"--model-dir={checkpoint}"),
                    *self.args,
                ],
                pass_fds=[listener.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._output = b""


@contextmanager
def worker(checkpoint: Path, directory: Path, *args: str) -> Iterator[WorkerProcess]:
    running = WorkerProcess(*args)
    running.start_worker(checkpoint, directory)
    assert running.process is not None
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        assert running.process.stdout is not None
        running.process.stdout.close()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_it_starts_fast_stays_small_and_says_loading(checkpoint: Path, tmp_path: Path) -> None:
    with worker(checkpoint, tmp_path) as running:
        # The kernel holds this connection until the worker accepts.
        status, body = running.get("/health/ready")
        assert running.process is not None
        # Processor time, not the clock: other processes may keep the processors busy.
        assert cpu_seconds(running.process.pid) < START_SECONDS
        assert resident_mib(running.process.pid) < 150
        assert status == 503
        assert json.loads(body)["status"] == "loading"
        assert running.get("/health/live")[0] == 200


def test_it_loads_no_torch() -> None:
    script = "import sys, service.worker; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout.strip() == "False", found.stderr


def test_requests_before_the_model_is_there_are_refused_and_counted(
    checkpoint: Path, tmp_path: Path
) -> None:
    with worker(checkpoint, tmp_path, "--served-model-name", "small") as running:
        status, body = running.post("/v1/completions", {"model": "small", "prompt": "x"})
        assert status == 503
        assert "not ready" in body["error"]["message"]
        labels = {"route": "completions", "outcome": "refused:loading", "model": "small"}
        assert running.total("quire_requests_total", **labels) == 1
        (line,) = until(
            lambda: [line for line in running.log_lines() if line["event"] == "request"],
            5,
            "the request's log line",
        )
        assert line["outcome"] == "refused:loading"


def test_probes_and_scrapes_leave_no_log_line(checkpoint: Path, tmp_path: Path) -> None:
    with worker(checkpoint, tmp_path) as running:
        for path in ("/health/live", "/health/ready", "/metrics"):
            running.get(path)
        assert running.terminate() == 0
        assert [line for line in running.log_lines() if line["event"] == "request"] == []


def test_sigterm_without_requests_ends_it_at_once_with_status_0(
    checkpoint: Path, tmp_path: Path
) -> None:
    with worker(checkpoint, tmp_path) as running:
        running.get("/health/live")
        begin = time.monotonic()
        assert running.terminate() == 0
        assert time.monotonic() - begin < 3


def test_it_ends_when_its_parent_ends(checkpoint: Path, tmp_path: Path) -> None:
    """The parent told here is one that is gone already."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with worker(checkpoint, tmp_path, f"--parent-pid={gone.pid}") as running:
        process = running.process
        assert process is not None
        until(lambda: process.poll() is not None, 20, "the worker to end")
        assert process.returncode == 1


def test_a_model_directory_that_cannot_be_used_is_an_error_in_the_log(tmp_path: Path) -> None:
    broken = write_tiny_checkpoint(tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{}")
    with worker(broken, tmp_path) as running:
        process = running.process
        assert process is not None
        until(lambda: (running.output(), process.poll() is not None)[1], 20, "the worker to end")
        assert process.returncode == 1
        (line,) = [line for line in running.log_lines() if line["level"] == "error"]
        assert "tokenizer" in line["exception"].lower()


def test_a_dead_collector_does_not_hold_up_requests_or_the_end(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_listening_socket("127.0.0.1", 0) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    with worker(checkpoint, tmp_path) as running:
        running.get("/health/live")
        begin = time.monotonic()
        for _ in range(20):
            assert running.get("/v1/models")[0] == 200
        assert time.monotonic() - begin < 2
        begin = time.monotonic()
        assert running.process is not None
        running.process.send_signal(signal.SIGTERM)
        assert running.terminate() == 0
        assert time.monotonic() - begin < 3
