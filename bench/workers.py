"""How streamed tokens per second grow with the number of API workers.

    python -m bench.workers                       # one and two workers, 128 streams for each
    python -m bench.workers --workers 1 2 4 --seconds 20

Whole servers (``quire serve``) with a simulated engine that gives every stream a token per step;
its own CPU time is shown, because it must not be the limit. A client in another process opens the
streams one after the other, so that workers share them, then reads and counts events. Rounds
alternate between servers, so that other load on the machine affects all of them. ``tokens per
second`` needs a free core for each worker, for the engine and for the client. ``tokens per
CPU-second`` of all workers together does not: if it stays the same, that many cores bring that many
times as much. ``growth``: how much more so many workers bring by this figure, relative to the first
row.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from bench.report import print_table, write_result
from bench.sse import CHAT, Reader, cpu_seconds, open_stream, requests_in_progress
from tests.e2e.quire_server import QuireServer, command_of, descendants
from tests.service.running import until

STEP_MS = 5


@dataclass
class Row:
    workers: int
    tokens_per_second: float
    tokens_per_cpu_second: float  # of all workers
    worker_cores: float
    engine_cores: float


def processes(server: QuireServer, module: bytes) -> list[int]:
    assert server.process is not None
    return [pid for pid in descendants(server.process.pid) if module in command_of(pid)]


@contextmanager
def serving(workers: int, streams: int) -> Iterator[QuireServer]:
    arguments = (f"--api-workers={workers}", f"--max-num-seqs={streams}", "--store-url=none")
    model = f"simulated:step={STEP_MS}ms,per_sequence=0us,context=1000000"
    with QuireServer(model, *arguments, "--num-kv-blocks=2000000") as server:
        yield server


def measure(server: QuireServer, workers: int, streams: int, seconds: float) -> Row:
    fields = {"stream": True, "max_tokens": 900_000, "ignore_eos": True}
    body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
    with ExitStack() as ends:
        opened = []
        for _ in range(streams):
            opened.append(ends.enter_context(open_stream(server.port, CHAT, body)))
            time.sleep(0.002)  # so that another worker has a chance to accept
        reader = Reader(opened)
        while len(reader.heard) < streams:
            reader.read_for(0.2)
        reader.read_for(1.0)
        modules = {name: processes(server, name) for name in (b"service.worker", b"engine")}
        before = {name: sum(map(cpu_seconds, pids)) for name, pids in modules.items()}
        events, begin = reader.events, time.monotonic()
        reader.read_for(seconds)
        elapsed, events = time.monotonic() - begin, reader.events - events
        used = {name: sum(map(cpu_seconds, pids)) - before[name] for name, pids in modules.items()}
    until(lambda: requests_in_progress(server.port) == 0, 60, "the server to be idle")
    return Row(
        workers,
        events / elapsed,
        events / used[b"service.worker"],
        used[b"service.worker"] / elapsed,
        used[b"engine"] / elapsed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--streams", type=int, default=128, help="for each worker")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[int, list[Row]] = {workers: [] for workers in options.workers}
    with ExitStack() as ends:
        servers = {
            workers: ends.enter_context(serving(workers, workers * options.streams))
            for workers in found
        }
        for _ in range(options.rounds):
            for workers, server in servers.items():
                streams = workers * options.streams
                found[workers].append(measure(server, workers, streams, options.seconds))
    rows = []
    for workers, rounds in found.items():
        medians = {
            name: statistics.median(getattr(row, name) for row in rounds)
            for name in asdict(rounds[0])
        }
        rows.append({**medians, "workers": workers})
    first = rows[0]["tokens_per_cpu_second"] * rows[0]["workers"]
    for row in rows:
        row["growth"] = row["tokens_per_cpu_second"] * row["workers"] / first
    print_table(rows)
    write_result("workers", rows, streams=options.streams, seconds=options.seconds)


if __name__ == "__main__":
    main()
