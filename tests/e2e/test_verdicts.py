"""Faults are injected into a running server, and its verdict names each.

    python -m pytest -s tests/e2e/test_verdicts.py

prints the sentences. With ``SAVE_SNAPSHOTS=tests/service/overview/snapshots.json`` the numbers are
kept from which ``tests/service/overview/test_diagnose.py`` diagnoses the same faults.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from observability.admin_api import Condition
from service.overview.steadiness import AT_ONCE, FLIP_SECONDS
from tests.e2e.quire_server import (
    QuireServer,
    command_of,
    descendants,
    engines_of,
    stopped,
    until,
)

pytestmark = pytest.mark.one_process

SLOTS = 8
SEEN: dict[str, dict[str, Any]] = {}


class WatchedServer(QuireServer):
    """Its worker writes each second's snapshot to a file."""

    def __init__(self, lines: Path, *args: str, files: int | None = None) -> None:
        """``files``: how many may be open."""
        super().__init__(*args)
        self._files = {} if files is None else {"WATCHED_FILES": str(files)}
        self.module = "tests.e2e.watched_cli"
        self.lines = lines

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"WATCHED_SNAPSHOTS": str(self.lines)} | self._files

    def looks(self) -> list[dict[str, Any]]:
        """What the worker found and showed, second by second."""
        if not self.lines.exists():
            return []
        return [
            json.loads(line)
            for line in self.lines.read_bytes().splitlines(True)
            if line[-1:] == b"\n"
        ]

    def verdict(self, condition: Condition, seconds: float = 40) -> dict[str, Any]:
        """Wait until the server shows this condition, found in the same second. Keep the look."""
        begun = len(self.looks())

        def found() -> dict[str, Any] | None:
            for look in self.looks()[begun:]:
                if look["shown"] == look["found"] == condition.value:
                    return look
            self.output()
            return None

        try:
            look = until(found, seconds, condition.value)
        except TimeoutError:
            print(*self.looks()[-5:], sep="\n")
            raise
        print(f"{condition.value}: {look['sentence']}")
        SEEN[condition.value] = look["snapshot"]
        return look

    def process_of(self, module: str) -> int:
        """Wait until there is one."""
        assert self.process is not None
        server = self.process.pid

        def found() -> int | None:
            pids = [pid for pid in descendants(server) if module.encode() in command_of(pid)]
            return pids[0] if len(pids) == 1 else None

        return until(found, 60, f"one process of {module}")


def body(words: int = 5, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": f"{threading.get_ident()} " + "word " * words}]
    asked = {"messages": messages, "temperature": 0, "ignore_eos": True, **fields}
    return json.dumps(asked).encode()


@contextmanager
def load(server: QuireServer, clients: int, make: Callable[[], bytes]) -> Iterator[None]:
    """Clients that send one request after another while the block runs."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/v1/chat/completions", make())
                reply = connection.getresponse()
                while reply.read(4096) and not ends.is_set():
                    pass
            connection.close()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """A process that gets the CPU for a fifth of the time."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            os.kill(pid, signal.SIGSTOP)
            ends.wait(0.4)
            os.kill(pid, signal.SIGCONT)
            ends.wait(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextmanager
def client_that_does_not_read(server: QuireServer) -> Iterator[None]:
    asked = body(max_tokens=4000, stream=True, n=SLOTS, logprobs=True, top_logprobs=20)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(asked)}"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(head.encode() + b"\r\n\r\n" + asked)
        yield


_numbers = itertools.count()


def slow_grammar() -> bytes:
    """A schema that takes half a second to compile, another each time."""
    number = next(_numbers)
    properties = {f"p{number}_{each}": {"type": "integer"} for each in range(2000)}
    schema = {"type": "object", "properties": properties}
    form = {"type": "json_schema", "json_schema": {"name": "slow", "schema": schema}}
    return body(max_tokens=5, response_format=form)


def flips(looks: list[dict[str, Any]]) -> list[float]:
    """When what is shown of the load changed."""
    return [
        after["time"]
        for before, after in itertools.pairwise(looks)
        if before["shown"] != after["shown"]
        and not {before["shown"], after["shown"]} & {one.value for one in AT_ONCE}
        and before["shown"] != Condition.IDLE.value
    ]


@pytest.fixture(scope="module", autouse=True)
def saved() -> Iterator[None]:
    yield
    path = os.environ.get("SAVE_SNAPSHOTS")
    if path:
        Path(path).write_text(json.dumps(SEEN, indent=1) + "\n")


def test_each_fault_is_named(tmp_path: Path) -> None:
    server = WatchedServer(
        tmp_path / "looks.jsonl",
        "simulated:step=10ms,prefill=2000,context=32768",
        *("--max-num-seqs", str(SLOTS), "--drain-timeout", "30", "--log-level", "warning"),
        *("--store-url", "none"),
    )
    server.start()
    with contextlib.ExitStack() as ends:
        ends.push(server)
        with stopped(server.process_of("engine")):
            server.verdict(Condition.LOADING)
        server.wait_ready()
        server.verdict(Condition.IDLE)
        with load(server, SLOTS // 2, lambda: body(max_tokens=100)):
            server.verdict(Condition.HEALTHY)
        with load(server, 3 * SLOTS, lambda: body(max_tokens=200)):
            server.verdict(Condition.SLOTS)
            steady = len(server.looks())
            until(lambda: len(server.looks()) >= steady + 2 * FLIP_SECONDS, 60, "steady load")
            looks = server.looks()[steady:]
            assert {look["shown"] for look in looks} == {Condition.SLOTS.value}
        with load(server, 2, lambda: body(words=6000, max_tokens=5)):
            server.verdict(Condition.PREFILL)
        with load(server, 16, slow_grammar):
            server.verdict(Condition.CONSTRAINT)
        with (
            load(server, 2, lambda: body(max_tokens=100)),
            starved(server.process_of("tests.e2e.watched_worker")),
        ):
            server.verdict(Condition.FRONTEND)
        with client_that_does_not_read(server):
            server.verdict(Condition.CLIENTS, 60)
        with load(server, 4, lambda: body(max_tokens=300)):
            engine = server.process_of("engine")
            until(lambda: server.total("quire_sequences_running") == 4, 30, "streams to run")
            with stopped(engine):
                look = server.verdict(Condition.SILENT)
                assert look["snapshot"]["sequences"] == 4
        with load(server, 1, lambda: body(max_tokens=1000)):
            until(lambda: server.total("quire_sequences_running") == 1, 30, "a stream to run")
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            server.verdict(Condition.DRAINING)
    times = flips(server.looks())
    assert all(later - earlier >= FLIP_SECONDS for earlier, later in itertools.pairwise(times))


def test_the_silent_one_of_two_engines_is_named(tmp_path: Path) -> None:
    server = WatchedServer(
        tmp_path / "looks.jsonl",
        "simulated:step=10ms",
        *("--data-parallel-size", "2", "--log-level", "warning", "--store-url", "none"),
    )
    with server, load(server, 8, lambda: body(max_tokens=300)):
        server.verdict(Condition.HEALTHY)
        until(
            lambda: server.total("quire_engines", state="ok") == 2, 30, "both engines to be counted"
        )
        until(lambda: server.total("quire_sequences_running") == 8, 30, "streams to run")
        pid = engines_of(server)[1]
        number = int(b"engine-1." in b"".join(command_of(pid)))
        with stopped(pid):
            look = server.verdict(Condition.ENGINES)
            assert look["sentence"].startswith(f"Engine {number} has been silent for ")
            engines = look["snapshot"]["engines"]
            assert [engine["status"] for engine in engines].count("silent") == 1
            assert engines[number]["sequences"] > 0
            assert server.total("quire_engines", state="ok") == 1
            assert server.total("quire_engines", state="silent") == 1
        server.verdict(Condition.HEALTHY)


def test_connections_that_are_all_in_use_are_named(tmp_path: Path) -> None:
    server = WatchedServer(
        tmp_path / "looks.jsonl",
        "simulated:step=10ms",
        *("--log-level", "warning", "--store-url", "none", "--api-workers", "2"),
        files=256,
    )
    head = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{"
    with server, contextlib.ExitStack() as clients:
        for _ in range(250):  # both workers accept 96
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            client.sendall(head)
        look = server.verdict(Condition.CONNECTIONS)
        assert look["snapshot"]["connections"] == look["snapshot"]["connection_limit"] == 2 * 96
        assert "192 of 192 are in use, and new ones wait" in look["sentence"]


def test_a_full_kv_cache_is_named(tmp_path: Path) -> None:
    server = WatchedServer(
        tmp_path / "looks.jsonl",
        "simulated:step=10ms,context=1024,kv_tokens=1024",
        *("--max-num-seqs", "32", "--log-level", "warning", "--store-url", "none"),
        *("--api-key", "alice=sk-alice-12345678", "--api-key", "bob=sk-bob-123456789"),
    )
    keys = itertools.cycle(["sk-bob-123456789", "sk-bob-123456789", "sk-alice-12345678"])
    with server, load_of_keys(server, 12, keys):
        look = server.verdict(Condition.KV)
        assert look["snapshot"]["largest_holder"] in {"alice", "bob"}


@contextmanager
def load_of_keys(server: QuireServer, clients: int, keys: Iterator[str]) -> Iterator[None]:
    ends = threading.Event()

    def run(key: str) -> None:
        while not ends.is_set():
            server.post(
                "/v1/chat/completions",
                json.loads(body(words=40, max_tokens=400)),
                {"Authorization": f"Bearer {key}"},
            )

    threads = [
        threading.Thread(target=run, args=(next(keys),), daemon=True) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join(60)
