"""Measures what a server with several tenants does at ten times its capacity.

    python -m bench.overload                      # 180 seconds of overload
    python -m bench.overload --seconds 20

A whole server (``quire serve``) with a simulated model and four keys of equal weight. First twice
as many streams as there are slots, again and again: the peak goodput. Then requests arrive at
random, ten times as many as can be served; one tenant sends nine tenths of them. A tenth of all
have ``service_tier: "flex"``. Clients of the other three tenants obey ``Retry-After``, at most
four times; the greedy tenant's do not come back. Goodput is streamed tokens of admitted requests,
as all of those are answered completely. A share is of these tokens, against the part that the
tenant's weight gives it: 1 is fair. ``drain`` is what a full queue takes to drain at the peak. The
bound on a class's time to the first token follows from the rules of docs/fairness.md: a tenant that
was alone fills half of the queue, which drains at a quarter of what its class is guaranteed once
the others are there. A result is only worth keeping from a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import print_table, write_result
from engine.queueing import ServiceClass
from engine.schedule.waiting import FLOORS
from tests.e2e.quire_server import QuireServer

STEP_MS = 50
SLOTS = 8
OUTPUT = 32
WAITING = 64
TIMES = 10
GREEDY = 0.9
FLEX = 0.1
MOST_TRIES = 5
MOST_OPEN = 1024
PATIENCE_SECONDS = 120.0
BROKEN = -1
# Of all work: the floor of batch, and what that leaves for standard.
GUARANTEED = {
    "standard": 1 - FLOORS[ServiceClass.BATCH],
    "batch": FLOORS[ServiceClass.BATCH],
}
TENANTS = ("greedy", "one", "two", "three")


@dataclass
class Client:
    """One client with one request. Times are monotonic seconds; ``first``: of its first token."""

    tenant: str
    kind: str  # its class
    came: float
    tries: int = 0
    sent: float = 0.0  # the last try
    status: int = 0
    retry_after: int | None = None
    first: float | None = None
    texts: list[float] = field(default_factory=list)
    whole: bool = False

    @property
    def waited(self) -> float:
        """Seconds to the first token, since the try that was admitted."""
        assert self.first is not None
        return self.first - self.sent

    def generated(self, begin: float, end: float) -> float:
        """Return how many tokens came between two moments. An event may have the text of several
        tokens, because some end in the middle of a character; an answer has ``OUTPUT`` of them."""
        if not self.whole:
            return 0.0
        return OUTPUT * sum(begin <= at < end for at in self.texts) / len(self.texts)


class Load:
    """Sends requests to a server on loopback. ``most_open``: connections at a time."""

    def __init__(self, port: int, most_open: int) -> None:
        self._port = port
        self._open = asyncio.Semaphore(most_open)

    async def send(self, client: Client) -> None:
        """Send a client's request once and read the answer. The status is ``BROKEN`` if there is
        none in time."""
        async with self._open:
            client.tries += 1
            client.sent = time.monotonic()
            client.retry_after = None
            try:
                await asyncio.wait_for(self._exchange(client), PATIENCE_SECONDS)
            except (OSError, TimeoutError):
                client.status = BROKEN

    async def _exchange(self, client: Client) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(_request(client, self._port))
            await self._read(reader, client)
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, client: Client) -> None:
        first = await reader.readline()
        if not first:
            raise ConnectionError("closed without an answer")
        client.status = int(first.split()[1])
        while line := (await reader.readline()).strip().lower():
            if line.startswith(b"retry-after:"):
                client.retry_after = int(line.partition(b":")[2])
        if client.status != 200:
            return
        while line := await reader.readline():
            if b'"content":"' in line and b'"content":""' not in line:
                client.texts.append(time.monotonic())
                client.first = client.first or client.texts[0]
            elif line.startswith(b"data: [DONE]"):
                client.whole = True
                return

    async def persist(self, client: Client, until: float) -> None:
        """Send a client's request, and again when the server says so."""
        for _ in range(MOST_TRIES):
            await self.send(client)
            if client.status != 429 or client.tenant == "greedy" or client.retry_after is None:
                return
            if time.monotonic() + client.retry_after > until:
                client.status = 0  # its time would come after the end: this says nothing
                return
            await asyncio.sleep(client.retry_after)


def _request(client: Client, port: int) -> bytes:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "max_tokens": OUTPUT,
        "ignore_eos": True,
    }
    if client.kind == "batch":
        body["service_tier"] = "flex"
    encoded = json.dumps(body).encode()
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Authorization: Bearer {_key(client.tenant)}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(encoded)}\r\n\r\n"
    ).encode() + encoded


def _key(tenant: str) -> str:
    return f"sk-of-tenant-{tenant}"


async def peak(load: Load, seconds: float) -> float:
    """Return the tokens per second of streams that always fill all slots."""
    end = time.monotonic() + seconds
    clients: list[Client] = []

    async def one_after_the_other(tenant: str) -> None:
        while time.monotonic() < end:
            clients.append(Client(tenant, "standard", time.monotonic()))
            await load.send(clients[-1])

    await asyncio.gather(*(one_after_the_other(TENANTS[i % 4]) for i in range(2 * SLOTS)))
    return rate(clients, end - seconds / 2, end)


def rate(clients: list[Client], begin: float, end: float) -> float:
    """Return the tokens per second between two moments."""
    return sum(one.generated(begin, end) for one in clients) / (end - begin)


async def overload(load: Load, per_second: float, seconds: float) -> tuple[list[Client], float]:
    """Return all clients and when the first came."""
    rng = random.Random(7)
    begin = time.monotonic()
    end = begin + seconds
    clients: list[Client] = []
    at = begin
    async with asyncio.TaskGroup() as tasks:
        while (at := at + rng.expovariate(per_second)) < end:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            greedy = rng.random() < GREEDY
            tenant = TENANTS[0] if greedy else rng.choice(TENANTS[1:])
            kind = "batch" if rng.random() < FLEX else "standard"
            clients.append(Client(tenant, kind, at))
            tasks.create_task(load.persist(clients[-1], end))
    return clients, begin


def report(clients: list[Client], begin: float, seconds: float, top: float) -> dict[str, Any]:
    """Return the figures of an overload. The first quarter, in which the queue fills, is left out
    of goodput and shares."""
    middle, end = begin + seconds / 4, begin + seconds
    admitted = [one for one in clients if one.first is not None]
    tokens = dict.fromkeys(TENANTS, 0.0)
    for one in admitted:
        tokens[one.tenant] += one.generated(middle, end)
    waits = sorted(one.waited for one in admitted)
    drain = WAITING * OUTPUT / top
    obedient = [one for one in clients if one.tenant != "greedy" and one.status]
    figures: dict[str, Any] = {
        "seconds": seconds,
        "clients": len(clients),
        "peak_tokens_per_second": top,
        "goodput_of_peak": rate(admitted, middle, end) / top,
        "cut_short": sum(not one.whole for one in admitted),
        "statuses": dict(Counter(str(one.status) for one in clients)),
        "ttft_p50": statistics.median(waits),
        "ttft_p99": waits[int(0.99 * (len(waits) - 1))],
        "drain": drain,
        "ttft_within_drain": sum(wait <= drain for wait in waits) / len(waits),
        "obedient": len(obedient),
        "obedient_admitted": sum(one.status == 200 for one in obedient) / max(1, len(obedient)),
    }
    for tenant in TENANTS:
        share = tokens[tenant] / max(1.0, sum(tokens.values()))
        figures[f"share_of_{tenant}"] = share * len(TENANTS)
    for kind in ("standard", "batch"):
        of_class = [one.waited for one in admitted if one.kind == kind]
        figures[f"longest_wait_{kind}"] = max(of_class, default=None)
        ahead = (WAITING / 2 + SLOTS) * OUTPUT
        figures[f"bound_{kind}"] = ahead / (top * GUARANTEED[kind] / len(TENANTS))
    return figures


def measure(seconds: float, unloaded: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="quire-overload-") as folder:
        keys = Path(folder) / "keys.json"
        entries = [{"alias": tenant, "key": _key(tenant)} for tenant in TENANTS]
        keys.write_text(json.dumps({"keys": entries}))
        keys.chmod(0o600)
        arguments = (
            *(f"--max-num-seqs={SLOTS}", f"--max-waiting-requests={WAITING}", "--store-url=none"),
            f"--keys-file={keys}",
        )
        model = f"simulated:step={STEP_MS}ms,per_sequence=0us,context=4096"
        with QuireServer(model, *arguments) as server:
            return asyncio.run(_measure(server.port, seconds, unloaded))


async def _measure(port: int, seconds: float, unloaded: float) -> dict[str, Any]:
    load = Load(port, MOST_OPEN)
    top = await peak(load, unloaded)
    clients, begin = await overload(load, TIMES * top / OUTPUT, seconds)
    return report(clients, begin, seconds, top)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="of overload")
    parser.add_argument("--unloaded", type=float, default=10.0, help="seconds without overload")
    parser.add_argument("--name", default="overload", help="of the result's file")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    figures = measure(options.seconds, options.unloaded)
    print_table([{"figure": name, "value": value} for name, value in figures.items()])
    print(write_result(options.name, [figures], load_average=busy))


if __name__ == "__main__":
    main()
