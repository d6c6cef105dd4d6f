"""What does serving notice when the database of requests is away?

    python -m bench.store_away

A real worker with PostgreSQL (Debian's programs) and an engine of 5 ms steps. Streamed chats run
in windows; in every second one the database is down. Then it stays down while more short requests
end than the worker keeps for it. It returns, and what is stored and what was counted as dropped
must add up to what the clients have begun.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.report import print_table, write_result
from bench.visibility import STEP_MS, STREAMS, Clients, Load, cpu_seconds
from tests.service.running import RunningService
from tests.service.running_postgres import Postgres, programs
from tests.service.tiny_model import write_tiny_model

_DROPPED = re.compile(r'^quire_telemetry_dropped_total\{[^}]*signal="records"[^}]*\} (\S+)', re.M)
_PATIENCE_SECONDS = 60
_SHORT_TOKENS = 2


def stored(binaries: Path, url: str) -> int:
    """Return how many requests the database has."""
    command = [str(binaries / "psql"), url, "-Atc", "SELECT count(*) FROM quire_requests"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def dropped(service: RunningService) -> int:
    found = _DROPPED.search(httpx.get(f"{service.url}/metrics").text)
    return round(float(found[1])) if found else 0


class Measured:
    """A server, its database, and how many requests its clients have begun."""

    def __init__(self, service: RunningService, server: Postgres, binaries: Path) -> None:
        self._service, self._server, self._binaries = service, server, binaries
        self.requests = 0

    def window(self, clients: Clients, store: str, seconds: float) -> dict[str, Any]:
        pid = self._service.worker.popen.pid
        used = cpu_seconds(pid)
        ended, gaps = clients.run(seconds)
        self.requests += ended
        return {
            "store": store,
            "requests": ended,
            "worker_us_per_request": (cpu_seconds(pid) - used) / ended * 1e6,
            "p50_gap_ms": median(gaps) * 1e3,
            "p99_gap_ms": sorted(gaps)[int(len(gaps) * 0.99)] * 1e3,
        }

    def settled(self) -> tuple[int, int]:
        """Wait until all requests are stored or were dropped; return how many of each."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        found = (0, 0)
        while time.monotonic() < deadline:
            found = stored(self._binaries, self._server.url), dropped(self._service)
            if sum(found) == self.requests:
                return found
            time.sleep(0.2)
        sys.exit(f"{self.requests} requests, but {found[0]} stored and {found[1]} dropped")


def measure(
    windows: int, seconds: float, away: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    binaries = programs()
    if binaries is None:
        sys.exit("PostgreSQL is not installed")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        database = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(Postgres(binaries, database))
        model = write_tiny_model(folder / "model")
        simulated = f"simulated:step={STEP_MS}ms,context=100000,tokenizer={model}"
        service = stack.enter_context(
            RunningService(
                model,
                folder,
                engine_args=("--model", simulated),
                worker_args=("--store-url", server.url),
            )
        )
        measured = Measured(service, server, binaries)
        clients = Clients(service.port, Load(STREAMS, 64))
        measured.window(clients, "there", 1.0)  # what happens only once is not counted
        rows = []
        for _ in range(windows):
            measured.settled()
            rows.append(measured.window(clients, "there", seconds))
            measured.settled()
            server.stop()
            rows.append(measured.window(clients, "away", seconds))
            server.start()
        measured.settled()
        server.stop()
        rows.append(
            measured.window(Clients(service.port, Load(STREAMS, _SHORT_TOKENS)), "away, full", away)
        )
        server.start()
        there, lost = measured.settled()
    return rows, {"requests": measured.requests, "stored": there, "dropped": lost}


def compared(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of the windows' ratios, each to the one before it."""
    there = [row for row in rows if row["store"] == "there"]
    away = [row for row in rows if row["store"] == "away"]
    return {
        f"{name}_ratio": median(b[name] / a[name] for a, b in zip(there, away, strict=True))
        for name in ("requests", "worker_us_per_request", "p50_gap_ms", "p99_gap_ms")
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.store_away", description=__doc__)
    parser.add_argument("--windows", type=int, default=5, help="of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window (%(default)s)")
    parser.add_argument("--away", type=float, default=20.0, help="of the last one (%(default)s)")
    options = parser.parse_args()
    rows, facts = measure(options.windows, options.seconds, options.away)
    print_table(rows)
    facts |= compared(rows)
    print(facts)
    print(write_result("store_away", rows, **facts))


if __name__ == "__main__":
    main()
