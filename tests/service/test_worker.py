"""One API worker, started as the supervisor starts it, without an engine."""

from __future__ import annotations

import io
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

from engine.beats import Page, Sign, failure_path
from observability import logging
from observability.ledger import Past
from service.settings import ServiceSettings
from service.supervision.listener import open_listening_socket
from service.supervision.page import Supervision, SupervisorPage
from service.worker import WorkerOptions, make_peers, make_telemetry
from tests.e2e.quire_server import QuireServer, until
from tests.service.tiny_checkpoint import write_tiny_checkpoint

# Of a processor. Measured: 0.8 to 1.4 s, a third of it Litestar's, on a machine that others keep
# busy, which stretches processor time too.
START_SECONDS = 2.0

# What a start must not load, for each takes longer than most of what it needs.
HEAVY = (
    *("alembic", "sqlalchemy", "numpy"),  # the store's
    # What libraries of ours load where it is installed.
    *("advanced_alchemy", "attr", "pydantic", "pygments", "rich"),
)
MAIN = ("-m", "service.worker")
MAIN_THEN_TELL_MODULES = f"""
import json, sys
from service.worker import main

main(sys.argv[1:])
print(json.dumps({{"loaded": [name for name in {HEAVY} if name in sys.modules]}}))
"""
MAIN_THEN_COUNT_THREADS = """
import json, os, sys
from tokenizers import Tokenizer
from service.worker import main

main(sys.argv[2:])
tokenizer = Tokenizer.from_file(sys.argv[1])
before = set(os.listdir("/proc/self/task"))
tokenizer.encode_batch_fast(["some words"] * 64)
print(json.dumps({"new_threads": len(set(os.listdir("/proc/self/task")) - before)}))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


class WorkerProcess(QuireServer):
    """A worker on a socket that this process opened."""

    def start_worker(
        self, checkpoint: Path, directory: Path, program: tuple[str, ...] = MAIN
    ) -> None:
        with open_listening_socket("127.0.0.1", 0) as listener:
            self.port = listener.getsockname()[1]
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *program, f"--listen-fd={listener.fileno()}"),
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
def worker(
    checkpoint: Path, directory: Path, *args: str, program: tuple[str, ...] = MAIN
) -> Iterator[WorkerProcess]:
    running = WorkerProcess(*args)
    running.start_worker(checkpoint, directory, program)
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


def test_an_answered_request_is_progress_for_the_supervisor(
    checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "worker.page"
    page = Page(path, create=True)
    with worker(checkpoint, tmp_path, "--store-url=none", f"--beats={path}") as running:
        assert running.get("/health/ready")[0] == 503  # probes do not count
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello."}]}
        assert running.post("/v1/chat/completions", body)[0] == 503
        until(lambda: page[Sign.PROGRESS] == 1, 10, "the beat after the answer")


def test_it_answers_without_the_libraries_that_would_slow_its_start(
    checkpoint: Path, tmp_path: Path
) -> None:
    program = ("-c", MAIN_THEN_TELL_MODULES)
    with worker(checkpoint, tmp_path, "--store-url=none", program=program) as running:
        assert running.get("/health/ready")[0] == 503
        assert running.terminate() == 0
        assert [line for line in running.log_lines() if "loaded" in line] == [{"loaded": []}]


def test_its_tokenizer_needs_no_threads_which_may_be_short_at_the_first_request(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    program = ("-c", MAIN_THEN_COUNT_THREADS, str(checkpoint / "tokenizer.json"))
    with worker(checkpoint, tmp_path, "--store-url=none", program=program) as running:
        assert running.get("/health/ready")[0] == 503
        assert running.terminate() == 0
        counts = [line for line in running.log_lines() if "new_threads" in line]
        assert counts == [{"new_threads": 0}]


def test_the_store_and_its_libraries_come_once_the_worker_accepts(
    checkpoint: Path, tmp_path: Path
) -> None:
    with worker(checkpoint, tmp_path, f"--store-url=sqlite:///{tmp_path}/store") as running:
        events = until(
            lambda: (
                events
                if "response store opened"
                in (events := [line["event"] for line in running.log_lines()])
                else None
            ),
            30,
            "the store to open",
        )
        assert events.index("worker accepts") < events.index("response store opened")
        assert running.get("/v1/responses/resp_1")[0] == 404


def test_the_app_is_made_without_the_libraries_of_its_store(
    checkpoint: Path, tmp_path: Path
) -> None:
    script = f"""
import sys
from pathlib import Path
from service.app import create_app
from service.telemetry.observer import NoTelemetry
from service.settings import ServiceSettings

create_app(
    ServiceSettings(store_url=sys.argv[2]),
    model_dir=Path(sys.argv[1]),
    socket_path=Path("none"),
    telemetry=NoTelemetry(),
)
print([name for name in {HEAVY} if name in sys.modules])
"""
    for url in ("", f"sqlite:///{tmp_path}/store", "postgresql://nobody@nowhere/nothing"):
        run = [sys.executable, "-c", script, str(checkpoint), url]
        found = subprocess.run(run, capture_output=True, text=True)
        assert found.stdout.splitlines()[-1:] == ["[]"], found.stderr


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
        assert time.monotonic() - begin < 10


def test_it_ends_when_its_parent_ends(checkpoint: Path, tmp_path: Path) -> None:
    """The parent given here is already gone."""
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
    page = tmp_path / "worker.page"
    Page(page, create=True)
    with worker(broken, tmp_path, f"--beats={page}") as running:
        process = running.process
        assert process is not None
        until(lambda: (running.output(), process.poll() is not None)[1], 20, "the worker to end")
        assert process.returncode == 1
        (line,) = [line for line in running.log_lines() if line["level"] == "error"]
        assert line["error"].startswith("tokenizer.json: ")
        assert "exception" not in line
        assert failure_path(page).read_text() == line["error"]


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
        assert time.monotonic() - begin < 10
        begin = time.monotonic()
        assert running.process is not None
        running.process.send_signal(signal.SIGTERM)
        assert running.terminate() == 0
        assert time.monotonic() - begin < 10


def test_a_worker_whose_ledger_cannot_be_written_counts_for_itself(
    checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "ledger").touch()
    read_only = os.open(tmp_path / "ledger", os.O_RDONLY)
    options = WorkerOptions(socket="unused", model_dir=str(checkpoint), ledger_fd=read_only)
    writer = logging.LineWriter(io.BytesIO())
    telemetry = make_telemetry(ServiceSettings(), options, writer)
    assert telemetry.metrics.ledger.past is Past.PRIVATE
    assert b"quire_requests_in_progress" in telemetry.exposition(None)[0]
    writer.close()


def test_the_lead_is_the_same_for_routes_and_for_what_only_one_may_do(tmp_path: Path) -> None:
    page = SupervisorPage(workers=3)
    for worker in range(3):
        page.set_worker(worker, 4711 + worker)
    page.lead = 2  # worker 0 died, and its successor is still starting
    for index in range(3):
        options = WorkerOptions(
            socket="engine.sock",
            worker_index=index,
            peer_dir=str(tmp_path),
            model_dir="",
            supervisor_page="page",
        )
        supervision = Supervision(page, index)
        peers = make_peers(ServiceSettings(api_workers=3), options, supervision)
        assert peers.lead == supervision.lead == 2
        assert peers.leads == supervision.leads == (index == 2)
