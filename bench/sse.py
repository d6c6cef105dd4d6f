"""Measures how many streamed tokens one CPU-second of an API worker can serve.

    python -m bench.sse                       # 256 streams, a token each every 10 ms, every row
    python -m bench.sse --rows chat --seconds 20

The real worker (``python -m service.worker``) uses a stand-in engine that speaks the engine's
protocol on a unix socket and gives every sequence one token per step (in one row 16 at once, as
after a pause or from several tokens per step). A client on loopback opens all streams, then reads
and counts events. Only the worker's CPU time counts, so that other load on the machine distorts
little. ``events per write`` is 1 if every token is written separately; it grows when tokens wait
for their stream, which makes them cheaper. The last row is the limit: the rate of a minimal app
that writes a pre-rendered chunk on the same HTTP server, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.report import print_table, write_result
from engine.messages import (
    FRAME_HEADER,
    Abort,
    Admitted,
    EngineStats,
    Generate,
    Ready,
    StepOutputs,
    StepPhase,
    Submit,
    TokenLogprobs,
    decode_to_engine,
    encode_frame,
    packed_top,
)
from tests.service.running import Process, free_port, until
from tests.service.tiny_model import VOCABULARY, write_tiny_model

MAX_MODEL_LEN = 1 << 20
LIMIT = "limit: bare app"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {}),
    "chat, 16 tokens at once": (CHAT, {"priority": 16}),
    "chat, stop strings": (CHAT, {"stop": ["\u0001never", "\u0002never"]}),
    # An answer with logprobs may have fewer tokens.
    "chat, logprobs": (CHAT, {"logprobs": True, "top_logprobs": 0, "max_tokens": 1 << 19}),
    "completions": ("/v1/completions", {"prompt": "Hello"}),
    "messages": ("/v1/messages", {}),
    "responses": (RESPONSES, {"store": False}),
    "responses, kept as it goes": (RESPONSES, {"store": True}),
}


class StandInEngine:
    """Speaks ``engine.messages``; "generates" the letters a to z at a fixed pace."""

    def __init__(self, step_seconds: float) -> None:
        self._step = step_seconds
        self._running: dict[int, Submit] = {}
        self._fresh: list[int] = []
        self._steps = 0

    async def serve(self, path: Path) -> None:
        server = await asyncio.start_unix_server(self._connection, path)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            encode_frame(
                Ready(
                    model="stand-in",
                    architecture="none",
                    dtype="none",
                    device="none",
                    num_parameters=0,
                    vocab_size=VOCABULARY,
                    max_model_len=MAX_MODEL_LEN,
                    max_num_seqs=4096,
                    max_num_batched_tokens=4096,
                    block_size=16,
                    num_kv_blocks=1,
                    kv_cache_bytes=0,
                    load_seconds=0.0,
                )
            )
        )
        steps = asyncio.create_task(self._run(writer))
        try:
            while True:
                (size,) = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
                match decode_to_engine(await reader.readexactly(size)):
                    case Submit() as submit:
                        self._running[submit.handle] = submit
                        self._fresh.append(submit.handle)
                    case Abort(handles):
                        for handle in handles:
                            self._running.pop(handle, None)
        except (asyncio.IncompleteReadError, ConnectionError):
            steps.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await steps

    async def _run(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._step, loop.time())
            await asyncio.sleep(due - loop.time())
            writer.write(encode_frame(self._outputs()))
            await writer.drain()

    def _outputs(self) -> StepOutputs:
        now = time.monotonic()
        self._steps += 1
        # A sequence gets ``priority`` tokens at once (at least one), as after a pause.
        handles = array(
            "q",
            [
                handle
                for handle, submit in self._running.items()
                for _ in range(max(1, submit.priority))
            ],
        )
        tokens = array("i", [64 + (self._steps + handle) % 26 for handle in handles])
        fresh, self._fresh = self._fresh, []
        logprobs = {
            entry: TokenLogprobs(-1.0, 1, packed_top([(tokens[entry], -1.0)]))
            for entry, submit in enumerate(self._running.values())
            if isinstance(submit.task, Generate) and submit.task.params.logprobs is not None
        }
        return StepOutputs(
            time=now,
            handles=handles.tobytes(),
            token_ids=tokens.tobytes(),
            logprobs=logprobs,
            admitted=[Admitted(handle, now, 0) for handle in fresh if handle in self._running],
            finished=[],
            phase=StepPhase.DECODE,
            step_seconds=self._step,
            step_tokens=len(handles),
            step_sequences=len(self._running),
            stats=EngineStats(
                time=now,
                running=len(self._running),
                kv_blocks_free=1,
                tokens_generated=self._steps * len(handles),
                steps=self._steps,
            ),
        )


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def requests_in_progress(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("quire_requests_in_progress{")
    )


def open_stream(port: int, path: str, body: dict[str, Any]) -> socket.socket:
    payload = json.dumps(body).encode()
    stream = socket.create_connection(("127.0.0.1", port), timeout=30)
    stream.sendall(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n".encode()
        + payload
    )
    stream.setblocking(False)
    return stream


class Reader:
    """Reads all streams as they arrive and counts events and writes: each write is one chunk of
    HTTP's chunked encoding, framed by two CRLF, and nothing else here contains a CRLF."""

    def __init__(self, streams: list[socket.socket]) -> None:
        self.events = 0
        self.line_ends = 0
        self._selector = selectors.DefaultSelector()
        for stream in streams:
            self._selector.register(stream, selectors.EVENT_READ)
        self.heard: set[int] = set()

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]  # sockets only
                if not data:
                    raise RuntimeError("a stream ended early")
                self.line_ends += data.count(b"\r\n")
                events = data.count(b"data: {")
                self.events += events
                if events:
                    self.heard.add(key.fd)


def measure(args: argparse.Namespace, row: str, port: int, worker: Process) -> dict[str, Any]:
    path, fields = ROWS[row]
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    body = {"model": "tiny", "stream": True, limit: MAX_MODEL_LEN, **fields}
    if path == RESPONSES:
        body["input"] = "Hello"
    elif "prompt" not in body:
        body["messages"] = [{"role": "user", "content": "Hello"}]
    streams = [open_stream(port, path, body) for _ in range(args.streams)]
    try:
        found = _measure(args, row, streams, worker)
    finally:
        for stream in streams:
            stream.close()
    until(lambda: requests_in_progress(port) == 0, 30, "the worker to notice who left")
    return found


def measure_limit(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    port = free_port()
    server = Process(
        folder / "limit.log",
        *("-m", "bench.sse_limit", "--port", str(port), "--step-ms", str(args.step_ms)),
    )
    try:
        until(lambda: "accepts" in server.output(), 30, "the bare app")
        streams = [open_stream(port, "/", {}) for _ in range(args.streams)]
        try:
            return _measure(args, LIMIT, streams, server)
        finally:
            for stream in streams:
                stream.close()
    finally:
        server.end()


def _measure(
    args: argparse.Namespace, row: str, streams: list[socket.socket], server: Process
) -> dict[str, Any]:
    reader = Reader(streams)
    while len(reader.heard) < args.streams:
        reader.read_for(0.2)
    reader.read_for(1.0)
    events, line_ends = reader.events, reader.line_ends
    start, before = time.monotonic(), cpu_seconds(server.popen.pid)
    reader.read_for(args.seconds)
    elapsed = time.monotonic() - start
    cpu = cpu_seconds(server.popen.pid) - before
    events, line_ends = reader.events - events, reader.line_ends - line_ends
    return {
        "row": row,
        "streams": args.streams,
        "step_ms": args.step_ms,
        "tokens per CPU-second": events / cpu,
        "us per token": cpu / events * 1e6,
        "tokens per second": events / elapsed,
        "events per write": 2 * events / line_ends,
        "worker cores": cpu / elapsed,
    }


def run_engine(path: Path, step_seconds: float) -> None:
    """Run the stand-in engine in its own process."""
    asyncio.run(StandInEngine(step_seconds).serve(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--step-ms", type=float, default=10.0, help="0: as fast as it goes")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--serve-engine", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_engine:
        run_engine(args.serve_engine, args.step_ms / 1e3)
        return
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        model = write_tiny_model(folder / "tiny")
        path, port = folder / "engine.sock", free_port()
        engine = subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.sse"),
                *("--serve-engine", str(path), "--step-ms", str(args.step_ms)),
            ]
        )
        worker = Process(
            folder / "worker.log",
            *("-m", "service.worker", "--socket", str(path), "--model-dir", str(model)),
            *("--port", str(port), "--served-model-name", "tiny", "--log-format", "json"),
            *("--store-url", f"sqlite:///{folder}/store.sqlite3", "--resume-timeout", "1"),
        )
        try:
            until(lambda: "worker accepts" in worker.output(), 30, "the worker")
            until(lambda: '"phase":"ready"' in worker.output(), 30, "the engine")
            rows = [measure(args, row, port, worker) for row in args.rows]
            rows.append(measure_limit(args, folder))
        finally:
            worker.end()
            engine.terminate()
            engine.wait()
    best = rows[-1]["tokens per CPU-second"]
    rows = [{**row, "of the limit": row["tokens per CPU-second"] / best} for row in rows]
    print_table(rows)
    print(write_result("sse", rows, seconds=args.seconds))


if __name__ == "__main__":
    main()
