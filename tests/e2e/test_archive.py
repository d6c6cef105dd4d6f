"""What the database has of requests and usage is what clients count, in SQLite and PostgreSQL, also
when workers are killed; and serving does not need the database."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import tempfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from observability.catalogue import OTHER_KEY
from observability.outcomes import is_outcome
from service.store.place import store_place
from service.store.schema import database_url
from tests.e2e.quire_server import QuireServer, command_of, descendants, free_port, until
from tests.service.running_postgres import Postgres, programs

pytestmark = pytest.mark.one_process

KEYS = {"alice": "sk-alice-1", "bob": "sk-bob-2", "carol": "sk-carol-3"}
CLIENTS = 12
REQUESTS = int(os.environ.get("QUIRE_ARCHIVE_REQUESTS", "600"))
MODEL = "simulated:step=0.2ms"
ADMIN_PORT = free_port()
KINDS = ("requests", "prompt_tokens", "cached_tokens", "output_tokens")


class Ledger:
    """What the clients count: requests by their ids, with what the answers said of tokens."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, dict[str, int]]] = {}
        self.cut: set[str] = set()
        self._left = REQUESTS
        self._lock = threading.Lock()

    def take(self) -> int | None:
        with self._lock:
            self._left -= 1
            return self._left if self._left >= 0 else None

    @property
    def left(self) -> int:
        return self._left


class Client(threading.Thread):
    """Sends requests of one key until enough have been sent."""

    def __init__(self, port: int, ledger: Ledger, key: str) -> None:
        super().__init__(daemon=True)
        self._port, self._ledger, self._key = port, ledger, key
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while (number := self._ledger.take()) is not None:
            request_id = ""
            body = {
                "messages": [{"role": "user", "content": "Hello! " * (1 + number % 40)}],
                "max_tokens": 1 + number % 7,
                "ignore_eos": True,
            }
            headers = {
                "content-type": "application/json",
                "authorization": f"Bearer {KEYS[self._key]}",
            }
            try:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                reply = connection.getresponse()
                request_id = reply.headers["x-request-id"]
                answer = json.loads(reply.read())
            except (http.client.HTTPException, OSError, ValueError):
                connection.close()  # the worker was killed
                self._ledger.cut.add(request_id or f"unknown {number}")
                continue
            assert reply.status == 200, answer
            usage = answer["usage"]
            figures = {
                "requests": 1,
                "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
                "output_tokens": usage["completion_tokens"],
            }
            self._ledger.answers[request_id] = (self._key, figures)
        connection.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.debian)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.sqlite3"
        return
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    with (
        tempfile.TemporaryDirectory(prefix="quire-postgres-") as folder,
        Postgres(binaries, Path(folder)) as postgres,
    ):
        yield postgres.url


@pytest.fixture
def server(url: str) -> Iterator[QuireServer]:
    keys = [f"--api-key={alias}={key}" for alias, key in KEYS.items()]
    arguments = (f"--store-url={url}", f"--admin-port={ADMIN_PORT}", "--log-format=json")
    with QuireServer(MODEL, *keys, *arguments) as running:
        yield running


def metrics(names: str) -> dict[tuple[str, ...], float]:
    """A counter by its labels' values."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN_PORT}/metrics", timeout=60) as reply:
        page = reply.read().decode()
    found = {}
    for line in page.splitlines():
        if line.startswith(names + "{"):
            labels, _, value = line[len(names) + 1 :].partition("} ")
            found[tuple(label.split('"')[1] for label in labels.split(","))] = float(value)
    return found


async def rows(url: str, statement: str) -> list[Any]:
    engine = create_async_engine(database_url(store_place(url)))
    async with engine.connect() as connection:
        found = list((await connection.execute(text(statement))).all())
    await engine.dispose()
    return found


ROWS = (
    "SELECT request_id, key, outcome, prompt_tokens, cached_tokens, output_tokens "
    "FROM quire_requests WHERE route = 'chat_completions'"
)
SUMS = (
    "SELECT key, sum(requests), sum(prompt_tokens), sum(cached_tokens), sum(output_tokens) "
    "FROM quire_usage WHERE route = 'chat_completions' GROUP BY key"
)
Sums = dict[str, dict[str, int]]


def summed(figures: Iterable[tuple[str, Mapping[str, int]]]) -> Sums:
    sums: Sums = {}
    for key, one in figures:
        of_key = sums.setdefault(key, dict.fromkeys(KINDS, 0))
        for kind in KINDS:
            of_key[kind] += one[kind]
    return sums


def stored_sums(url: str) -> tuple[dict[str, tuple[str, str, dict[str, int]]], Sums]:
    """The stored requests by id, and the stored usage by key."""
    found = asyncio.run(rows(url, ROWS))
    requests = {
        request_id: (key, outcome, dict(zip(KINDS, (1, *map(int, figures)), strict=True)))
        for request_id, key, outcome, *figures in found
    }
    assert len(requests) == len(found)
    usage = {
        key: dict(zip(KINDS, map(int, figures), strict=True))
        for key, *figures in asyncio.run(rows(url, SUMS))
    }
    return requests, usage


def worker_of(server: QuireServer) -> int | None:
    assert server.process is not None
    found = [p for p in descendants(server.process.pid) if b"service.worker" in command_of(p)]
    return found[0] if len(found) == 1 else None


def kill_worker(server: QuireServer) -> None:
    worker = worker_of(server)
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    until(lambda: worker_of(server) not in (None, worker), 60, "a new worker")


@pytest.mark.parametrize("kills", [0, 3])
def test_rows_counters_usage_and_clients_agree(server: QuireServer, url: str, kills: int) -> None:
    ledger = Ledger()
    clients = [Client(server.port, ledger, list(KEYS)[n % len(KEYS)]) for n in range(CLIENTS)]
    for kill in range(kills):
        left = REQUESTS * (kills - kill) // (kills + 1)
        until(lambda left=left: ledger.left <= left, 300, "load")  # type: ignore[misc]
        kill_worker(server)
    for client in clients:
        client.join(300)
    outcomes: Counter[str] = Counter()
    for labels, value in metrics("quire_requests_total").items():
        if "chat_completions" in labels and value:
            outcomes[next(filter(is_outcome, labels))] += round(value)
    tokens = metrics("quire_key_tokens_total")
    assert server.terminate() == 0  # and so everything is stored

    requests, usage = stored_sums(url)
    assert Counter(outcome for _, outcome, _ in requests.values()) == outcomes
    # The worker was killed before it had read whose request it was: then it belongs to no key.
    assert summed((key or OTHER_KEY, figures) for key, _, figures in requests.values()) == usage
    for key, kinds in usage.items():
        computed = kinds["prompt_tokens"] - kinds["cached_tokens"]
        found = {kind: tokens[(key, kind)] for kind in ("prompt", "cached", "output")}
        expected = {"prompt": computed, "cached": kinds["cached_tokens"]}
        assert found == {**expected, "output": kinds["output_tokens"]}
    # A client may have its answer whole when the worker is killed that has not counted it yet; and
    # one that is counted may have been killed with its last bytes unsent.
    cut = {one for one, (_, outcome, _) in requests.items() if outcome == "error:worker"}
    answered = {one: found for one, found in ledger.answers.items() if one not in cut}
    unstored = answered.keys() - requests.keys()
    assert unstored == set()
    unsent = requests.keys() - cut - answered.keys()
    assert len(unsent) <= len(ledger.cut)
    assert all(requests[one][::2] == found for one, found in answered.items())
    assert len(cut) <= kills * CLIENTS
    assert bool(kills) == bool(ledger.cut)
    print(f"{len(requests)} rows, {len(cut)} cut, {len(unsent)} unsent, {usage}")
