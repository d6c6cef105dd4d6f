"""Measures the cost of waiting requests: accepted, refused, abandoned, up to 100,000 of them.

    python -m bench.waiting                     # 1,000, 10,000 and 100,000 sequences

The real worker and a real engine (a simulated model whose steps take a second, so that all wait),
over HTTP: streamed chats of 100 choices each until that many sequences wait; then as many requests
again, which the queue's limit refuses (429); then every client disconnects at once. Microseconds of
CPU time of the worker and of the engine: per sequence accepted, per request refused, per sequence
abandoned. Constant figures mean that nothing is quadratic.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.report import print_table, write_result
from tests.service.running import Process, RunningService, until
from tests.service.tiny_model import write_tiny_model

CHOICES = 100
REFUSALS = 500
PATIENCE_SECONDS = 120
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """Microseconds of CPU time per request; resident memory in MiB while all of them wait."""

    waiting: int
    accept_worker: float
    accept_engine: float
    refuse_worker: float
    leave_worker: float
    leave_engine: float
    worker_mib: float
    engine_mib: float


class Meter:
    """The CPU time that a process used between two readings."""

    def __init__(self, process: Process) -> None:
        self._pid = process.popen.pid
        self._last = self._ticks()

    def microseconds(self, count: int) -> float:
        """Return the time since the last reading, divided by ``count``."""
        before, self._last = self._last, self._ticks()
        return (self._last - before) * TICK_SECONDS * 1e6 / count

    def mib(self) -> float:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def _ticks(self) -> int:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


def request(port: int) -> bytes:
    body = json.dumps(
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "wait"}],
            "n": CHOICES,
            "temperature": 1,
            "stream": True,
            "max_tokens": 100,
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    return (
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def measure(count: int, model: Path, folder: Path) -> Row:
    simulated = f"simulated:step=1s,output=100,tokenizer={model}"
    with RunningService(
        model,
        folder,
        engine_args=("--model", simulated, "--max-num-seqs", "1"),
        worker_args=("--max-waiting-requests", str(count), "--max-choices", str(CHOICES)),
    ) as service:
        worker, engine = Meter(service.worker), Meter(service.engine)
        clients = []

        def waiting(least: int) -> bool:
            return service.engine_counts()["waiting"] >= least

        def send() -> None:
            client = socket.create_connection(("127.0.0.1", service.port))
            client.sendall(request(service.port))
            clients.append(client)

        for sent in range(CHOICES, count + 1, CHOICES):
            send()
            if sent % 10_000 == 0 or sent == count:  # or the listening socket's backlog is full
                until(partial(waiting, sent - 1), PATIENCE_SECONDS, f"{sent} waiting")
        send()  # one sequence runs
        until(partial(waiting, count), PATIENCE_SECONDS, f"{count} waiting")
        accept = worker.microseconds(count), engine.microseconds(count)
        memory = worker.mib(), engine.mib()
        for _ in range(REFUSALS):
            status, _, _ = service.exchange(
                "POST",
                "/v1/chat/completions",
                b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}',
            )
            if status != 429:
                raise RuntimeError(f"status {status} where the queue is full")
        refuse = worker.microseconds(REFUSALS)
        engine.microseconds(1)
        for client in clients:
            client.close()
        until(lambda: not any(service.engine_counts().values()), PATIENCE_SECONDS, "an idle engine")
        leave = worker.microseconds(count), engine.microseconds(count)
        return Row(count, *accept, refuse, *leave, *memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    rows = []
    for count in options.counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows.append(measure(count, write_tiny_model(folder / "model"), folder))
        print_table([asdict(rows[-1])])
    print_table([asdict(row) for row in rows])
    print(write_result("waiting", [asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
