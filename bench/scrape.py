"""What does being scraped cost the streams?

    python -m bench.scrape                       # pages of 1 and 8 served names, then the streams
    python -m bench.scrape --segments 20

First the engine's messages, from which steps and tokens are counted: a batch that stays the same,
and one that changes at each step. Then the page itself, in this process: how long it holds the
event loop, in all and its longest piece, where nothing changed since the last page and where every
series did. Then the real worker and an engine of 5 ms steps with 8 served names: the gaps between
the chunks of one stream, in segments that alternate between no scraper and a scrape each second.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.report import print_table, write_result
from engine.messages import EngineStats, Heartbeat, Ready, StepOutputs, StepPhase
from observability import catalogue
from observability.metric_kinds import MetricKind
from service.engine.link import EngineState, LinkPhase
from service.telemetry.requests import Telemetry
from tests.service.running import RunningService
from tests.service.tiny_model import write_tiny_model

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PAGES = 50
STEPS, ROUNDS = 500, 7
SEGMENT_SECONDS = 3.0
READY = Ready(
    model="m",
    architecture="none",
    dtype="none",
    device="none",
    num_parameters=0,
    vocab_size=1,
    max_model_len=1,
    max_num_seqs=1,
    max_num_batched_tokens=1,
    block_size=16,
    num_kv_blocks=1,
    kv_cache_bytes=0,
    load_seconds=0.0,
)


@dataclass(frozen=True)
class PageRow:
    """Milliseconds of CPU time of the event loop's thread, the median of ``PAGES``; the longest
    piece is what a stream may have to wait for."""

    names: int
    format: str
    changed: str
    series: int
    kib: float
    page_ms: float
    longest_piece_ms: float


@dataclass(frozen=True)
class StepRow:
    """Microseconds to count one step."""

    sequences: int
    same_batch: float
    changing_batch: float


@dataclass(frozen=True)
class GapRow:
    """Milliseconds between the chunks of a stream: the median over the segments of each segment's
    figure, so that what else the machine does in some of them does not decide."""

    scraped: str
    segments: int
    p50: float
    p90: float
    p99: float
    worst: float


def measure_steps(sequences: int) -> StepRow:
    def step(number: int, first: int) -> StepOutputs:
        handles = array("q", range(first, first + sequences))
        return StepOutputs(
            time=number * 0.005,
            handles=handles.tobytes(),
            phase=StepPhase.DECODE,
            step_seconds=0.004,
            step_tokens=sequences,
            step_sequences=sequences,
            stats=EngineStats(steps=number, tokens_generated=number * sequences),
        )

    def seconds(changes: int) -> float:
        telemetry = serving(1)
        steps = [step(number, number % 2 * changes) for number in range(1, STEPS + 1)]
        begin = time.thread_time()
        for one in steps:
            telemetry.on_step(one)
        return (time.thread_time() - begin) / STEPS

    same, changing = (min(seconds(changes) for _ in range(ROUNDS)) for changes in (0, 1))
    return StepRow(sequences, same * 1e6, changing * 1e6)


def serving(names: int) -> Telemetry:
    telemetry = Telemetry([f"model-{number}" for number in range(names)], version="bench")
    telemetry.on_state(EngineState(LinkPhase.READY, "ready", READY))
    telemetry.on_step(Heartbeat(EngineStats()))
    return telemetry


def change_everything(telemetry: Telemetry, moment: int) -> None:
    """Another value in every series, and another exemplar in every fourth bucket that has any."""
    ledger = telemetry.metrics.ledger
    for cell in range(ledger.layout.engine_cells):
        ledger.cells[cell] += 1
    for metric in catalogue.METRICS:
        of_model = [label.name for label in metric.labels] == ["model"]
        if metric.kind is MetricKind.HISTOGRAM and not metric.bulk and of_model:
            # Of some metrics only the engine's own name has a series.
            for values in ledger.layout.families[metric.name].combinations():
                for bound in metric.buckets[::4]:
                    telemetry.metrics[metric].labels(*values).observe(bound, moment)


def measure_page(names: int, *, openmetrics: bool, changed: bool) -> PageRow:
    telemetry = serving(names)
    totals, longest = [], []
    page = b""
    for moment in range(1, PAGES + 1):
        if changed:
            change_everything(telemetry, moment)
        pieces, _ = telemetry.exposition_pieces(OPENMETRICS if openmetrics else "")
        took, made = [], []
        begin = time.thread_time()
        for piece in pieces:
            end = time.thread_time()
            took.append(end - begin)
            made.append(piece)
            begin = time.thread_time()
        totals.append(sum(took))
        longest.append(max(took))
        page = b"".join(made)
    lines = [line for line in page.splitlines() if not line.startswith(b"#")]
    return PageRow(
        names,
        "OpenMetrics" if openmetrics else "text",
        "all" if changed else "nothing",
        len(lines),
        len(page) / 1024,
        sorted(totals)[PAGES // 2] * 1e3,
        sorted(longest)[PAGES // 2] * 1e3,
    )


# In another process, so that it does not hold up the one that takes the times: during each second
# segment from a given moment on.
_SCRAPER = """
import socket, sys, time
port, begin, seconds, accept = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
head = f"GET /metrics HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n"
while True:
    time.sleep(1.0)
    if (time.monotonic() - begin) // seconds % 2 == 1:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"{head}Accept: {accept}\\r\\n\\r\\n".encode())
            while connection.recv(1 << 20):
                pass
"""


@contextmanager
def scraping(port: int, begin: float) -> Iterator[None]:
    """Scrape once a second during each second segment from ``begin`` on."""
    command = [sys.executable, "-c", _SCRAPER, str(port), str(begin), str(SEGMENT_SECONDS)]
    scraper = subprocess.Popen([*command, OPENMETRICS])
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()


def read_gaps(connection: socket.socket, until: float) -> list[float]:
    """Seconds between the chunks that arrive until then."""
    gaps: list[float] = []
    last = None
    while time.monotonic() < until:
        if not connection.recv(1 << 16):
            raise RuntimeError("the stream ended")
        now = time.monotonic()
        if last is not None:
            gaps.append(now - last)
        last = now
    return gaps


def measure_gaps(segments: int, folder: Path) -> list[GapRow]:
    model = write_tiny_model(folder / "model")
    names = [f"model-{number}" for number in range(8)]
    with RunningService(
        model,
        folder,
        engine_args=("--model", f"simulated:step=5ms,context=1000000,tokenizer={model}"),
        worker_args=("--served-model-name", ",".join(names)),
    ) as service:
        body = json.dumps(
            {
                "model": names[0],
                "messages": [{"role": "user", "content": "go"}],
                "max_tokens": 500_000,
                "ignore_eos": True,
                "stream": True,
            }
        )
        gaps: dict[bool, list[list[float]]] = {False: [], True: []}
        with closing(socket.create_connection(("127.0.0.1", service.port))) as connection:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())
            begin = time.monotonic() + 2.0
            with scraping(service.port, begin):
                read_gaps(connection, begin)
                for segment in range(2 * segments):
                    end = begin + (segment + 1) * SEGMENT_SECONDS
                    gaps[segment % 2 == 1].append(read_gaps(connection, end))
    return [gap_row("each second" if key else "never", found) for key, found in gaps.items()]


def gap_row(scraped: str, segments: list[list[float]]) -> GapRow:
    ordered = [sorted(gap * 1e3 for gap in gaps) for gaps in segments]

    def typical(share: float) -> float:
        return median(gaps[min(len(gaps) - 1, int(len(gaps) * share))] for gaps in ordered)

    return GapRow(scraped, len(segments), typical(0.5), typical(0.9), typical(0.99), typical(1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=12, help="of each kind, 3 s each")
    options = parser.parse_args()
    steps = [asdict(measure_steps(sequences)) for sequences in (1, 32, 256)]
    print_table(steps)
    pages = [
        measure_page(names, openmetrics=openmetrics, changed=changed)
        for names in (1, 8)
        for openmetrics in (False, True)
        for changed in (False, True)
    ]
    print_table([asdict(row) for row in pages])
    rows = steps + [asdict(row) for row in pages]
    if options.segments:
        with tempfile.TemporaryDirectory() as name:
            gaps = measure_gaps(options.segments, Path(name))
        print_table([asdict(row) for row in gaps])
        never, scraped = gaps
        print(f"with scraping / without: p99 {scraped.p99 / never.p99:.3f},", end=" ")
        print(f"worst {scraped.worst / never.worst:.3f}")
        rows += [asdict(row) for row in gaps]
    print(write_result("scrape", rows))


if __name__ == "__main__":
    main()
