"""What does being seen cost the API worker?

    python -m bench.visibility                      # all but the log's lines against nothing
    python -m bench.visibility --tracing            # no tracing, and 0, 1, 10 and 100 % of traces
    python -m bench.visibility --parts log scrape   # only these against nothing
    python -m bench.visibility --streams 200 --tokens 256 --name visibility_busy

Each side is a real worker with an engine of 5 ms steps (a simulated model), all of them up at once.
All streams are decoded in each step.
A client keeps streamed chats open on one side after another, in short windows, so that other load
on the machine affects all sides alike: on a shared machine the same work may take twice as long a
few minutes later. The engines of the other sides are idle meanwhile. Only the worker's CPU time
counts, on a core that engines and clients do not use: where all move between cores, the same work
takes up to a tenth more or less time. Ratios are to the first side, which has nothing on; a
second one like it shows how far two equal sides differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import print_table, write_result
from bench.tracing import trace_receiver
from tests.service.running import RunningService, free_port
from tests.service.tiny_model import write_tiny_model

STREAMS = 32
STEP_MS = 5
_FIRST_CHUNKS = 3  # of a stream: headers, role and first token are not gaps between tokens
# Requests a path again a second after each response ends, on one connection, as Prometheus does. A
# feed's response does not end. If one thread fails, the process ends, which `measure` notices.
_READER = """
import http.client, os, sys, threading, time, traceback
port, path, readers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
def read():
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        connection.request("GET", path, headers=accept)
        answer = connection.getresponse()
        while answer.read1():
            pass
        answer.close()
        time.sleep(1.0)
def read_or_end():
    try:
        read()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
for _ in range(readers):
    threading.Thread(target=read_or_end).start()
"""


@dataclass(frozen=True)
class Part:
    """Something that lets people see the server. ``without``: what a worker gets to have it off,
    if it is on by default; ``readers``: so many read ``path`` while it is measured."""

    name: str
    without: tuple[str, ...] = ()
    tracing_ratio: float | None = None
    path: str = ""
    readers: int = 0
    admin: bool = False  # on the admin API's port, where a reader stays


PARTS = (
    Part("log", ("--log-level", "error")),
    Part("tracing", tracing_ratio=0.1),
    Part("scrape", path="/metrics", readers=1),
    Part("records", ("--keep-requests", "1", "--store-url", "none")),
    Part("feed", ("--no-admin",), path="/admin/v1/feed", readers=16, admin=True),
)


@dataclass(frozen=True)
class Side:
    name: str
    parts: tuple[Part, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(word for part in PARTS if part not in self.parts for word in part.without)

    def variables(self, endpoint: str) -> dict[str, str]:
        ratios = [part.tracing_ratio for part in self.parts if part.tracing_ratio is not None]
        if not ratios:
            return {}
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(ratios[0]),
        }


def traced(name: str, ratio: float) -> Side:
    return Side(name, (Part("tracing", tracing_ratio=ratio),))


TRACING_SIDES = (
    Side("no endpoint"),
    *(traced(f"{ratio:.0%}", ratio) for ratio in (0.0, 0.01, 0.1, 1.0)),
)


@dataclass(frozen=True)
class Load:
    """So many streamed chats at a time, each of so many tokens."""

    streams: int
    tokens: int


@dataclass
class Found:
    """One side's figures, one for each window or each round; in the latter case ``cpu`` is per
    request."""

    cpu: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    p99_gap: list[float] = field(default_factory=list)


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def cpu_seconds(pid: int) -> float:
    """Return the time that all threads of a process ran so far, to the nanosecond."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it ended
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def keep_apart(worker: int, cores: Sequence[int]) -> None:
    """Run all threads of a worker on the first core only."""
    if len(cores) > 1:
        for task in Path(f"/proc/{worker}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores[:1])


class Clients:
    """Keep a load going."""

    def __init__(self, port: int, load: Load) -> None:
        body = json.dumps(
            {
                "model": "tiny",
                "messages": [{"role": "user", "content": "go on"}],
                "max_tokens": load.tokens,
                "ignore_eos": True,
                "stream": True,
            }
        )
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = (head + body).encode()
        self._port = port
        self._streams = load.streams

    def run(self, seconds: float) -> tuple[int, list[float]]:
        """Begin chats for so long and read them to their ends. Return how many there were, and the
        seconds between their chunks."""
        ended, gaps = 0, list[float]()
        last: dict[int, list[float]] = {}  # when its chunks came
        with ExitStack() as stack, selectors.DefaultSelector() as selector:
            for _ in range(self._streams):
                address = ("127.0.0.1", self._port)
                opened = stack.enter_context(socket.create_connection(address))
                selector.register(opened, selectors.EVENT_READ)
                opened.sendall(self._request)
            end = time.monotonic() + seconds
            running = self._streams
            while running:
                for key, _ in selector.select(30):
                    connection: Any = key.fileobj
                    data = connection.recv(1 << 16)
                    now = time.monotonic()
                    if not data:
                        raise RuntimeError("a stream ended early")
                    before = last.get(key.fd, [])
                    if len(before) > _FIRST_CHUNKS:
                        gaps.append(now - before[-1])
                    last[key.fd] = [*before, now]
                    if data.endswith(b"0\r\n\r\n"):
                        ended += 1
                        del last[key.fd]
                        if now < end:
                            connection.sendall(self._request)
                        else:
                            selector.unregister(connection)
                            running -= 1
        return ended, gaps


@contextmanager
def reading(
    parts: Sequence[Part], port: int, admin_port: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    readers = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", _READER),
                *(str(admin_port if part.admin else port), part.path, str(part.readers)),
            ]
        )
        for part in parts
        if part.readers
    ]
    try:
        yield readers
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def measure(sides: Sequence[Side], windows: int, seconds: float, load: Load) -> list[Found]:
    found = [Found() for _ in sides]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])  # also what this process starts
    with ExitStack() as stack:
        endpoint = stack.enter_context(trace_receiver())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_tiny_model(folder / "model")
        timing = f"step={STEP_MS}ms,per_sequence=0us"
        simulated = f"simulated:{timing},context=100000,tokenizer={model}"
        engine_args = ("--model", simulated, "--max-num-seqs", str(load.streams))
        services, clients, admin_ports = [], [], []
        readers: list[subprocess.Popen[bytes]] = []
        for number, side in enumerate(sides):
            own = folder / str(number)
            own.mkdir()
            admin_ports.append(free_port())
            arguments = (*side.arguments, "--admin-port", str(admin_ports[-1]))
            arguments += ("--max-waiting-tokens", "1000000")  # all chats begin at once
            if "--store-url" not in arguments:
                arguments += ("--store-url", f"sqlite:///{own}/store.sqlite3")
            with environment(side.variables(endpoint)):
                service = RunningService(model, own, engine_args=engine_args, worker_args=arguments)
                services.append(stack.enter_context(service))
            keep_apart(service.worker.popen.pid, cores)
            # All the time, so that they take the machine's time from all sides alike.
            readers += stack.enter_context(reading(side.parts, service.port, admin_ports[-1]))
            clients.append(Clients(service.port, load))
            clients[-1].run(0.5)  # what happens only once is not counted
        for window in range(windows):
            order = range(len(sides)) if window % 2 == 0 else reversed(range(len(sides)))
            for number in order:
                worker = services[number].worker.popen.pid
                before = cpu_seconds(worker)
                ended, gaps = clients[number].run(seconds)
                found[number].cpu.append(cpu_seconds(worker) - before)
                found[number].requests.append(ended)
                found[number].p99_gap.append(sorted(gaps)[int(len(gaps) * 0.99)])
                if any(reader.poll() is not None for reader in readers):
                    raise RuntimeError("a reader has ended; its side was measured without it")
    return found


def in_rounds(
    sides: Sequence[Side], rounds: int, windows: int, seconds: float, load: Load
) -> list[Found]:
    """Return each side's CPU seconds per request in each round, over all its windows, and the
    median of the windows' 99th percentiles of gaps. Each round starts new processes, because two
    equal processes differ by more than two windows of the same one."""
    found = [Found() for _ in sides]
    for number in range(rounds):
        turned = number % len(sides)
        order = [*range(turned, len(sides)), *range(turned)]
        in_round = measure([sides[one] for one in order], windows, seconds, load)
        for side, its in zip(order, in_round, strict=True):
            found[side].cpu.append(sum(its.cpu) / sum(its.requests))
            found[side].requests.append(sum(its.requests))
            found[side].p99_gap.append(median(its.p99_gap))
    return found


def rows_of(sides: Sequence[Side], found: Sequence[Found], tokens: int) -> list[dict[str, Any]]:
    """Ratios are medians of the rounds' ratios. The range of a ratio holds it in 19 of 20 such
    measurements (bootstrap). ``found``: from ``in_rounds``."""
    rows = []
    first = found[0]
    for side, its in zip(sides, found, strict=True):
        ratios = list(map(truediv, its.cpu, first.cpu))
        low, high = range_of_median(ratios)
        rows.append(
            {
                "on": side.name,
                "requests": sum(its.requests),
                "worker us per request": median(its.cpu) * 1e6,
                "tokens per CPU-second": tokens / median(its.cpu),
                "CPU ratio": median(ratios),
                "low": low,
                "high": high,
                "p99 gap ms": median(its.p99_gap) * 1e3,
                "p99 ratio": median(map(truediv, its.p99_gap, first.p99_gap)),
            }
        )
    return rows


def range_of_median(values: Sequence[float], resamples: int = 2000) -> tuple[float, float]:
    """Return the 95 % interval of the median by the bootstrap (Efron 1979)."""
    chance = random.Random(0)
    medians = sorted(median(chance.choices(values, k=len(values))) for _ in range(resamples))
    return medians[resamples // 40], medians[-resamples // 40 - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tracing", action="store_true", help="the cost table of tracing")
    names = [part.name for part in PARTS]
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=names,
        default=[name for name in names if name != "log"],
        help="what is on (all but the log)",
    )
    parser.add_argument("--rounds", type=int, default=12, help="with new processes (%(default)s)")
    parser.add_argument(
        "--windows", type=int, default=8, help="of each side in a round (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of each window (%(default)s)")
    parser.add_argument("--streams", type=int, default=STREAMS, help="at a time (%(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (%(default)s)")
    parser.add_argument("--name", help="of the file in bench/results")
    options = parser.parse_args()
    on = tuple(part for part in PARTS if part.name in options.parts)
    on_and_off = (Side("nothing"), Side(", ".join(options.parts), on), Side("nothing, again"))
    sides = TRACING_SIDES if options.tracing else on_and_off
    load = Load(options.streams, options.tokens)
    found = in_rounds(sides, options.rounds, options.windows, options.seconds, load)
    rows = rows_of(sides, found, options.tokens)
    print_table(rows)
    name = options.name or ("visibility_tracing" if options.tracing else "visibility")
    print(write_result(name, rows, **asdict(load), rounds=options.rounds))


if __name__ == "__main__":
    main()
