"""What do clients that do not read, and connections that never ask, cost the others?

    python -m bench.slow_readers                       # 1,000 connections
    python -m bench.slow_readers --connections 5000

Eight streams are read as they come, a token each 20 ms (a simulated model). Their times between
tokens are taken alone, then with the connections, then alone again. Half of the connections
request a long streamed answer and read nothing of it; the others send half of a request. The
answers are complete, and wait to be read, before the middle time begins: what generating them costs
is the engine's affair. Limits on time are raised so that the server does not end them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.report import print_table, write_result
from bench.soak.server import resident_mib
from bench.visibility import cpu_seconds
from tests.e2e.quire_server import QuireServer, command_of, descendants, until

STEP_MS = 20
STREAMS = 8
ANSWER_TOKENS = 600  # 100 KB of events
_SPARE_DESCRIPTORS = 256
# Unread, of one connection, in the worker: buffers of both directions and what was generated.
_MOST_KIB = 512
_BATCH = 100


def request(body: dict[str, Any], *, cut: int = 0) -> bytes:
    """A streamed chat's request, without its last ``cut`` bytes."""
    content = json.dumps({"messages": [{"role": "user", "content": "x"}], **body}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    sent = head.encode() + content
    return sent[: len(sent) - cut]


@dataclass
class Reader:
    """A client that reads its stream as it comes. ``times``: of each token."""

    port: int
    times: list[float] = field(default_factory=list)

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = {"max_tokens": 100_000, "ignore_eos": True, "stream": True}
        writer.write(request(body))
        try:
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    self.times.append(time.perf_counter())
            raise EOFError("a stream that was read has ended")
        finally:
            writer.close()

    def gaps(self, since: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the milliseconds between tokens from ``since`` on."""
        times = np.array([moment for moment in self.times if moment >= since])
        return np.diff(times) * 1e3


async def silent(port: int, sent: bytes) -> socket.socket:
    """A connection that sends this and never reads."""
    made = socket.socket()
    # The server's own buffers must hold the answer, not the kernel's.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(made, sent)
    return made


async def figures(
    server: QuireServer, readers: list[Reader], seconds: float, name: str
) -> dict[str, Any]:
    pid = worker_of(server)
    begin, used = time.perf_counter(), cpu_seconds(pid)
    await asyncio.sleep(seconds)  # what is measured is what happens meanwhile
    share = (cpu_seconds(pid) - used) / (time.perf_counter() - begin)
    gaps = np.concatenate([reader.gaps(begin) for reader in readers])
    p50, p99 = np.percentile(gaps, (50, 99))
    return {
        **{"": name, "gaps": len(gaps), "p50 ms": p50, "p99 ms": p99, "worst ms": gaps.max()},
        # Which other programs of the machine change less than times.
        "worker CPU ms per token": share / len(gaps) * seconds * 1e3,
        "worker CPU %": share * 100,
    }


def worker_of(server: QuireServer) -> int:
    assert server.process is not None
    pids = descendants(server.process.pid)
    return next(pid for pid in pids if b"service.worker" in command_of(pid))


def worker_mib(server: QuireServer) -> float:
    return resident_mib(worker_of(server)) or 0.0


async def measure(
    server: QuireServer, connections: int, seconds: float
) -> tuple[list[dict[str, Any]], float]:
    """Return the rows, and by how many MiB the worker grew."""
    readers = [Reader(server.port) for _ in range(STREAMS)]
    reading = [asyncio.create_task(reader.run()) for reader in readers]
    await _until(lambda: all(len(reader.times) > 100 for reader in readers))
    rows = [await figures(server, readers, seconds, "alone")]
    before = worker_mib(server)
    body = {"max_tokens": ANSWER_TOKENS, "ignore_eos": True, "stream": True}
    slow, half = request(body), request(body, cut=10)
    opened: list[socket.socket] = []
    for start in range(0, connections, _BATCH):
        count = min(_BATCH, connections - start)
        kinds = [slow if number % 2 else half for number in range(count)]
        opened += await asyncio.gather(*(silent(server.port, sent) for sent in kinds))
        await asyncio.sleep(0.05)
    await _until(lambda: _running(server) == STREAMS)
    rows.append(await figures(server, readers, seconds, f"with {connections} connections"))
    grown = worker_mib(server) - before
    for one in opened:
        one.close()
    await _until(lambda: server.total("quire_requests_in_progress") == STREAMS)
    rows.append(await figures(server, readers, seconds, "alone again"))
    for task in reading:
        task.cancel()
    ended = await asyncio.gather(*reading, return_exceptions=True)
    broken = [one for one in ended if not isinstance(one, asyncio.CancelledError)]
    if broken:
        raise RuntimeError(f"streams that were read broke: {broken}")
    return rows, grown


def _running(server: QuireServer) -> float:
    waiting = server.total("quire_sequences_waiting")
    return waiting or server.total("quire_sequences_running")


async def _until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(lambda: until(condition, 300, "a quiet engine"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.slow_readers", description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--no-write", dest="write", action="store_false", help="write no result")
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = args.connections + _SPARE_DESCRIPTORS
    if most != resource.RLIM_INFINITY and most < needed:
        parser.error(f"the limit of open files is {most}; {needed} are needed (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    patient = ("--slow-reader-timeout", "3600", "--receive-timeout", "3600")
    model = f"simulated:step={STEP_MS}ms,context=1000000,kv_tokens=20000000"
    with QuireServer(
        *(model, "--max-num-seqs", str(STREAMS + 256), *patient, "--store-url", "none"),
        *("--max-waiting-requests", str(args.connections + 1)),
    ) as server:
        rows, grown = asyncio.run(measure(server, args.connections, args.seconds))
    alone = (rows[0]["p99 ms"] + rows[2]["p99 ms"]) / 2
    moved = rows[1]["p99 ms"] / alone - 1
    each = grown * 1024 / args.connections
    print_table(rows)
    print(f"p99 moved by {moved:+.1%}; the worker grew by {grown:.0f} MiB, {each:.0f} KiB each")
    if args.write:
        facts = {"connections": args.connections, "moved": moved, "kib_each": each}
        print(write_result("slow_readers", rows, **facts))
    return int(each > _MOST_KIB)


if __name__ == "__main__":
    sys.exit(main())
