"""What the pages' queries and retention cost in a database with a million requests.

    python -m bench.archive               # SQLite, in a new file
    python -m bench.archive --postgres    # PostgreSQL, by Debian's programs, in a new cluster
    python -m bench.archive --url sqlite:////tmp/bench.sqlite3

It fills the tables of requests and usage, of which nothing else may be in the database (what an
earlier run has written counts); asks each query that the dashboard's pages ask; writes as the
server's own task does; and lets retention delete, as in the server, in every second span of time,
while a timer on the same event loop plays a stream with a token every 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from sqlalchemy import func, select

from bench.report import print_table, write_result
from observability.admin_api import EventKind, KeptRequest, PrefixReport, RequestEvent, RequestQuery
from observability.usage_table import HourlyUsage, UsageFigures, UsageGroup
from service.records.row import row_of
from service.store.archive import ArchiveSources, RequestArchive
from service.store.archive_database import ArchiveDatabase
from service.store.archive_tables import REQUEST_TABLE
from service.store.packed_request import pack_request
from service.store.place import StorePlace, store_place
from service.store.store import ResponseStore, StoreLimits
from service.store.sweep import ArchiveLimits
from service.telemetry.requests import Telemetry
from tests.service.running_postgres import Postgres, programs

DAYS = 7
KEYS = [f"key{number}" for number in range(1, 21)]
ROUTES = ("chat_completions", "responses", "messages")
OUTCOMES = ("stop",) * 12 + ("length",) * 5 + ("client_gone", "refused:overloaded", "error:engine")
_ROWS_AT_ONCE = 10_000
_TICK_SECONDS = 0.005
_TIMES = 15
_BATCHES = 200  # of the server's own size, to measure how fast it writes
_BATCH = 64
_SPAN_SECONDS = 6.0
_PACE_SECONDS = 0.02  # between requests that end meanwhile
# What retention is set to, one after the other: days, of which PostgreSQL drops one each time, and
# requests, for which it deletes rows of its last day.
_CUTS = (*((days, 10**9) for days in (5.5, 4.5, 3.5, 2.5)), *((2.5, 20_000),) * 4)


def made_up(number: int, ended: float, rng: random.Random) -> KeptRequest:
    queue, prefill, decode = rng.expovariate(2), rng.expovariate(5), rng.expovariate(0.5)
    prompt = int(rng.lognormvariate(6.5, 1))
    total = queue + prefill + decode
    return KeptRequest(
        request_id=f"req_{rng.getrandbits(128):032x}",
        trace_id=f"{rng.getrandbits(128):032x}",
        span_id=f"{rng.getrandbits(64):016x}",
        response_id=f"chatcmpl-{number:024x}",
        received=ended - total,
        ended=ended,
        route=rng.choice(ROUTES),
        key=KEYS[min(int(rng.expovariate(0.3)), len(KEYS) - 1)],
        client_address="10.1.2.3",
        user_agent="OpenAI/Python 3.1.0",
        model="h100-8b",
        status=200,
        outcome=rng.choice(OUTCOMES),
        stream=True,
        max_tokens=4000,
        prompt_tokens=prompt,
        cached_tokens=prompt // 3,
        output_tokens=int(rng.expovariate(1 / 200)),
        phases={"receive": 0.001, "queue": queue, "prefill": prefill, "decode": decode},
        total=total,
        ttft=queue + prefill,
        itl_mean=0.01,
        itl_max=0.1,
        prefix=PrefixReport(prompt // 3, prompt, "diverged", f"req_{rng.getrandbits(128):032x}"),
        events=(RequestEvent(EventKind.OUTPUT, queue + prefill, 1.0),),
    )


async def fill(database: ArchiveDatabase, rows: int, now: float) -> None:
    there = (await database.rows(select(func.count()).select_from(REQUEST_TABLE)))[0][0]
    rng = random.Random(there)
    step = DAYS * 86_400 / rows
    for start in range(there, rows, _ROWS_AT_ONCE):
        numbers = range(start, min(rows, start + _ROWS_AT_ONCE))
        made = [made_up(n, now - (rows - n) * step, rng) for n in numbers]
        await database.insert_requests([pack_request(row_of(one)) for one in made])
    if there:
        return
    hour = int(now // 3600)
    for day in range(400):
        usage = [
            HourlyUsage(
                0,
                hour - 24 * day - hours,
                UsageGroup(key, "h100-8b", route),
                UsageFigures(10, 1, 1000, 300, 500, 50, 12.5),
            )
            for hours in range(24)
            for key in KEYS
            for route in ROUTES[:2]
        ]
        await database.write_usage(1, usage)


async def milliseconds(ask: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """``cpu`` is that of this process, SQLite's thread included."""
    found = []
    used = time.process_time()
    for _ in range(_TIMES):
        begun = time.perf_counter()
        await ask()
        found.append((time.perf_counter() - begun) * 1e3)
    used = time.process_time() - used
    return {
        "best_ms": min(found),
        "p50_ms": statistics.median(found),
        "worst_ms": max(found),
        "cpu_ms": used / _TIMES * 1e3,
    }


def queries(
    archive: RequestArchive, now: float, one: KeptRequest
) -> dict[str, Callable[[], Awaitable[object]]]:
    def ask(**fields: object) -> Callable[[], Awaitable[object]]:
        return lambda: archive.query(RequestQuery(**fields))  # type: ignore[arg-type]

    day = now - 86_400
    return {
        "newest": ask(),
        "newest, 5 min, slower than 2 s": ask(since=now - 300, min_seconds=2.0),
        "newest, 5 min": ask(since=now - 300),
        "newest of a key": ask(key="key3", sort="-ended"),
        "newest that failed": ask(outcome="failed", sort="-ended"),
        "slowest, 5 min": ask(since=now - 300, sort="-total"),
        "slowest, 1 h": ask(since=now - 3600, sort="-total"),
        "slowest, 1 day": ask(since=day, sort="-total"),
        "slowest, all": ask(sort="-total"),
        "slowest TTFT, all": ask(sort="-ttft"),
        "most output of a key and route, all": ask(
            key="key2", route="messages", sort="-output_tokens"
        ),
        "slower than 5 s, queued, 1 day": ask(since=day, min_seconds=5.0, phase="queue"),
        "a rare filter, all": ask(key="key20", outcome="error:engine", min_seconds=20.0),
        "1,000 newest": ask(sort="-ended", limit=1000),
        "audit": lambda: archive.audit_rows(100),
        "by request id": lambda: archive.find(one.request_id),
        "by trace id": lambda: archive.find(one.trace_id),
        "usage by key, today by hour": lambda: archive.usage("key", day, now),
        "usage by key, 7 days by hour": lambda: archive.usage("key", now - 7 * 86_400, now),
        "usage by key, 30 days by day": lambda: archive.usage("key", now - 30 * 86_400, now, "day"),
        "usage by model, 400 days by day": lambda: archive.usage(
            "model", now - 400 * 86_400, now, "day"
        ),
    }


@asynccontextmanager
async def stream() -> AsyncIterator[list[float]]:
    """A stream with a token every 5 ms; its gaps in milliseconds."""
    gaps: list[float] = []

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now

    task = asyncio.create_task(tick())
    try:
        yield gaps
    finally:
        task.cancel()


@asynccontextmanager
async def traffic(telemetry: Telemetry) -> AsyncIterator[None]:
    """Requests that end all the time, for the archive to write."""
    rng = random.Random()

    async def end() -> None:
        number = 0
        while True:
            number += 1
            with telemetry.metrics.ledger:
                made = row_of(made_up(number, time.time(), rng))
                telemetry.ended_requests.put(made)
            await asyncio.sleep(_PACE_SECONDS)

    task = asyncio.create_task(end())
    try:
        yield
    finally:
        task.cancel()


class Watched(ArchiveDatabase):
    """A database whose batches of retention are timed."""

    batches: list[float]

    async def delete_requests(self, *, before: float, most: int) -> bool:
        begun = time.perf_counter()
        more = await super().delete_requests(before=before, most=most)
        self.batches.append((time.perf_counter() - begun) * 1e3)
        return more


def percentile(values: list[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]


async def span(name: str, database: Watched) -> dict[str, Any]:
    database.batches = []
    before = await count(database)
    async with stream() as gaps:
        await asyncio.sleep(_SPAN_SECONDS)
    found = gaps[1:]
    batches = list(database.batches)
    return {
        "retention": name,
        "deleted": max(0, before - await count(database)),
        "batches": len(batches),
        "batch_p50_ms": statistics.median(batches) if batches else 0.0,
        "batch_worst_ms": max(batches, default=0.0),
        "gap_p50_ms": statistics.median(found),
        "gap_p99_ms": percentile(found, 0.99),
        "gap_worst_ms": max(found),
    }


async def count(database: ArchiveDatabase) -> int:
    return int((await database.rows(select(func.count()).select_from(REQUEST_TABLE)))[0][0])


async def retention(
    archive: RequestArchive, telemetry: Telemetry, place: StorePlace
) -> list[dict[str, Any]]:
    """Return spans without and with deletion in turns, while requests end."""
    assert archive._database is not None
    await archive._database.close()
    database = archive._database = Watched(place)
    database.batches = []
    rows = []
    async with traffic(telemetry):
        for days, requests in _CUTS:
            rows.append(await span("off", database))
            kept = archive.limits.request_days, archive.limits.requests
            archive.limits.request_days, archive.limits.requests = days, requests
            archive._sweep._at = 0.0
            rows.append(await span(f"{days:g} days, {requests:,}", database))
            archive.limits.request_days, archive.limits.requests = kept
    return rows


def in_total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the spans' 99th percentiles, and that of the ratios of each span with
    deletion to the one before it, as a change in percent."""
    off, on = ([row["gap_p99_ms"] for row in rows[first::2]] for first in (0, 1))
    ratio = statistics.median(b / a for a, b in zip(off, on, strict=True))
    return {
        "gap_p99_off_ms": statistics.median(off),
        "gap_p99_on_ms": statistics.median(on),
        "moved_percent": (ratio - 1) * 100,
    }


async def rows_per_second(database: ArchiveDatabase) -> float:
    rng = random.Random()
    now = time.time()
    batches = [
        [pack_request(row_of(made_up(n, now + batch / 1000, rng))) for n in range(_BATCH)]
        for batch in range(_BATCHES)
    ]
    begun = time.perf_counter()
    for rows in batches:
        await database.insert_requests(rows)
    return _BATCHES * _BATCH / (time.perf_counter() - begun)


async def measure(place: StorePlace, rows: int, *, only_fill: bool) -> None:
    telemetry = Telemetry(["h100-8b"], version="bench", keys=KEYS, keeps_requests=True)
    responses = ResponseStore(place, StoreLimits(responses=1000, bytes=1 << 30, ttl=1000))
    sources = ArchiveSources(telemetry.ended_requests, telemetry.usage)
    keep = ArchiveLimits(requests=10**9, request_days=1000.0)
    archive = RequestArchive(place, keep, responses, sources)
    responses.open()
    await responses.attempted()
    if not responses.available:
        sys.exit("the database cannot be reached")
    database = ArchiveDatabase(place)
    now = float(int(time.time()) // 3600 * 3600)
    begun = time.perf_counter()
    await fill(database, rows, now)
    print(f"{place.backend}: {rows:,} rows written in {time.perf_counter() - begun:.0f} s")
    if not only_fill:
        archive.open()
        while not archive.available:
            await asyncio.sleep(0.05)
        await report(place, archive, telemetry, database, rows)
        await archive.close()
    await database.close()
    await responses.close()


async def report(
    place: StorePlace,
    archive: RequestArchive,
    telemetry: Telemetry,
    database: ArchiveDatabase,
    rows: int,
) -> None:
    load = os.getloadavg()[0]
    [one] = (await archive.query(RequestQuery(sort="-ended", limit=1))).requests
    assert one.ended is not None
    asked = []
    for name, ask in queries(archive, one.ended, one).items():
        asked.append({"query": name, **await milliseconds(ask)})
    print_table(asked)
    written = await rows_per_second(database)
    print(f"{written:,.0f} rows written a second, in batches of {_BATCH}")
    spans = await retention(archive, telemetry, place)
    print_table(spans)
    total = in_total(spans)
    print(", ".join(f"{name} {value:.2f}" for name, value in total.items()))
    path = write_result(
        f"archive_{place.backend}",
        asked,
        stored=rows,
        rows_per_second=written,
        retention=spans,
        **total,
        load_before=load,
        load_after=os.getloadavg()[0],
    )
    print(path)


def run(url: str, arguments: argparse.Namespace) -> None:
    uvloop.run(measure(store_place(url), arguments.rows, only_fill=arguments.fill))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.archive", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL and use it")
    parser.add_argument("--url", help="sqlite:///FILE or postgresql://…, empty")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fill", action="store_true", help="only fill")
    arguments = parser.parse_args()
    if arguments.url is not None:
        run(arguments.url, arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.postgres:
            run(f"sqlite:///{folder}/bench.sqlite3", arguments)
            return
        found = programs()
        if found is None:
            sys.exit("PostgreSQL is not installed")
        with Postgres(found, Path(folder)) as server:
            run(server.url, arguments)


if __name__ == "__main__":
    main()
