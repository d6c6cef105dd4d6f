"""How long a pod takes from its start to its first token, by parts.

    python -m bench.start                         # pocket, five starts
    python -m bench.start --model DIR --rounds 3

Each start is ``quire serve`` as the chart starts it on a CPU. The first of them fills the page
cache and compiles the CPU path, so it is shown apart. Parts, in seconds since the one before:

- ``imports``: until the supervisor has started its processes
- ``port``: until ``/health/live`` answers
- ``engine``: until the engine says that it is ready; ``model`` is the loading in it
- ``ready``: until ``/health/ready`` says 200; a probe sees that when it next looks
- ``first token``: of a request that is sent then

``compiled`` counts calls of the C compiler: none, once a cache has what the first start compiled.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.report import print_table, write_result

PARTS = ("imports", "port", "engine", "ready", "first token")
LOOK_SECONDS = 0.02
MOST_SECONDS = 600.0
COMPILERS = ("cc", "gcc", "clang")


class CountingCompilers:
    """Programs with the names of the compilers that note each call and then run the real one."""

    def __init__(self, folder: Path) -> None:
        self._calls = folder / "calls"
        self._programs = folder / "programs"
        self._programs.mkdir()
        for name in COMPILERS:
            if found := shutil.which(name):
                program = self._programs / name
                program.write_text(f'#!/bin/sh\necho {name} >> {self._calls}\nexec {found} "$@"\n')
                program.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self._programs}:{os.environ['PATH']}"

    def calls(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def status_of(port: int, path: str) -> int:
    """Return the HTTP status, or 0 while nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def wait_for(port: int, path: str, process: subprocess.Popen[str]) -> float:
    """Return the time at which ``path`` first says 200."""
    deadline = time.time() + MOST_SECONDS
    while status_of(port, path) != 200:
        if process.poll() is not None or time.time() > deadline:
            raise RuntimeError(f"no 200 from {path}")
        time.sleep(LOOK_SECONDS)
    return time.time()


def first_token(port: int) -> float:
    """Return the time at which the first piece of an answer arrives."""
    body = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_SECONDS)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(reply.read().decode(errors="replace"))
    for line in reply:
        if line.startswith(b"data: {"):
            [choice] = json.loads(line[6:])["choices"]
            if choice["delta"].get("content"):
                return time.time()
    raise RuntimeError("an answer without a token")


def logged(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("{"):
            yield json.loads(line)


def seconds(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["ts"]).timestamp()


def start(arguments: list[str], cache: Path, compilers: CountingCompilers) -> dict[str, float]:
    """Return the parts of one start, in seconds, and the calls of compilers in it."""
    port, before = free_port(), compilers.calls()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PATH": compilers.path}
    with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryDirectory() as state:
        began = time.time()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.cli", "serve", "--port", str(port), *arguments],
            env={**environment, "XDG_STATE_HOME": state, "PYTHONPATH": os.getcwd()},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            live = wait_for(port, "/health/live", process)
            ready = wait_for(port, "/health/ready", process)
            token = first_token(port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.seek(0)
            lines = list(logged(iter(log)))
    started = max(seconds(line) for line in lines if line["event"] == "started")
    loaded = next(line for line in lines if " is ready on " in str(line["event"]))
    times = [began, started, live, max(seconds(loaded), live), ready, token]
    parts = dict(zip(PARTS, (b - a for a, b in pairwise(times)), strict=True))
    model = float(str(loaded["event"]).rsplit(" after ", 1)[1].split()[0])
    return parts | {"all": token - began, "model": model, "compiled": compilers.calls() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="", help="a directory; the embedded model if empty")
    parser.add_argument("--rounds", type=int, default=5, help="starts that are counted")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    arguments = [*filter(None, [options.model]), "--device", "cpu"]
    arguments += ["--threads", str(options.threads), "--admin-port", "0"]
    with tempfile.TemporaryDirectory(prefix="quire-start-") as folder:
        cache = Path(folder) / "cache"
        compilers = CountingCompilers(Path(folder))
        starts = [start(arguments, cache, compilers) for _ in range(options.rounds + 1)]
    first, *warm = starts
    rows = [
        {
            "part": part,
            "first start": first[part],
            "median": statistics.median(each[part] for each in warm),
            "slowest": max(each[part] for each in warm),
        }
        for part in (*PARTS, "all", "model", "compiled")
    ]
    print_table(rows)
    print(write_result("start", rows, rounds=options.rounds, arguments=arguments))


if __name__ == "__main__":
    main()
